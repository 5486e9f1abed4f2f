// The attnlab command.
#include "tools/command/process.h"

int main(int argc, char** argv) {
  return attnlab::command::RunProcess({argv + (argc > 0 ? 1 : 0), argv + argc});
}
