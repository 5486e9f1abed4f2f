// `attnlab profile` as a program of its own:
//
//   bazel run --config=gpu //profiling:profile -- --problem=llama3-8b-prefill-4k
#include "tools/command/process.h"

int main(int argc, char** argv) {
  attnlab::command::Arguments arguments = {"profile"};
  arguments.insert(arguments.end(), argv + (argc > 0 ? 1 : 0), argv + argc);
  return attnlab::command::RunProcess(arguments);
}
