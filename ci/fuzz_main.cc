// Runs a fuzz target without libFuzzer: a main() that calls LLVMFuzzerTestOneInput with every input
// of the corpus, then with seeded random mutations of them. It does not measure coverage, so the
// corpus needs an example of everything. In return any compiler builds it, and the same seed gives
// the same inputs.
//
//   problem_fuzz [-runs=N] [-max_total_time=SECONDS] [-seed=N] [-max_len=BYTES] [FILE | DIR]...
//
// The flags are libFuzzer's; its other flags are accepted and ignored. Defaults: a million runs,
// and at most 10 seconds; with only -max_total_time, as many runs as fit. An input that crashes is
// printed and written to ./crash (or $TEST_UNDECLARED_OUTPUTS_DIR/crash).
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Input = std::vector<uint8_t>;

// Read by the signal handler.
const Input* current = nullptr;
char crash_path[4096] = "crash";

void OnCrash(int signal_number) {
  // Only calls that a signal handler may make.
  const auto say = [](const char* text) {
    if (write(STDERR_FILENO, text, std::strlen(text)) < 0) _exit(1);
  };
  signal(signal_number, SIG_DFL);
  if (current != nullptr) {
    say("\nfuzz: crashed on this input, also written to ");
    say(crash_path);
    say(":\n");
    if (write(STDERR_FILENO, current->data(), std::min<size_t>(current->size(), 1000)) < 0) {
      _exit(1);
    }
    say("\n");
    const int file = open(crash_path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (file >= 0) {
      if (write(file, current->data(), current->size()) < 0) say("fuzz: cannot write it\n");
      close(file);
    }
  }
  raise(signal_number);
}

void Run(const Input& input) {
  current = &input;
  LLVMFuzzerTestOneInput(input.data(), input.size());
  current = nullptr;
}

class Mutator {
 public:
  Mutator(uint64_t seed, size_t max_size) : random_(seed), max_size_(max_size) {}

  // A corpus entry with up to eight changes.
  Input Make(const std::vector<Input>& corpus) {
    Input input = corpus[Below(corpus.size())];
    for (size_t i = 0, count = Below(9); i < count; ++i) Change(input, corpus);
    if (input.size() > max_size_) input.resize(max_size_);
    return input;
  }

 private:
  size_t Below(size_t limit) { return limit == 0 ? 0 : random_() % limit; }

  void Change(Input& input, const std::vector<Input>& corpus) {
    const size_t at = Below(input.size() + 1);
    const size_t length = std::min(Below(1 + (size_t{1} << Below(6))), input.size() - at);
    const auto place = input.begin() + at;
    switch (Below(8)) {
      case 0:  // flip a bit
        if (at < input.size()) input[at] ^= 1 << Below(8);
        break;
      case 1:  // any byte
        if (at < input.size()) input[at] = static_cast<uint8_t>(Below(256));
        break;
      case 2:  // insert a byte
        input.insert(place, static_cast<uint8_t>(Below(4) == 0 ? Below(256) : ' ' + Below(95)));
        break;
      case 3:  // remove some bytes
        input.erase(place, place + length);
        break;
      case 4: {  // repeat some bytes
        const Input part(place, place + length);
        input.insert(input.begin() + Below(input.size() + 1), part.begin(), part.end());
        break;
      }
      case 5: {  // insert a piece of another entry
        const Input& other = corpus[Below(corpus.size())];
        const size_t from = Below(other.size() + 1);
        const size_t to = from + Below(other.size() - from + 1);
        input.insert(place, other.begin() + from, other.begin() + to);
        break;
      }
      case 6: {  // insert a number at a limit of its type
        static const char* const kNumbers[] = {"0",
                                               "-1",
                                               "1",
                                               "255",
                                               "65536",
                                               "2147483647",
                                               "2147483648",
                                               "4294967296",
                                               "9223372036854775807",
                                               "9223372036854775808",
                                               "18446744073709551616",
                                               "-0",
                                               "1e39",
                                               "1e-50",
                                               "nan",
                                               "inf",
                                               "0x10",
                                               "01",
                                               "+1",
                                               " 1",
                                               "1.5"};
        const char* const number = kNumbers[Below(std::size(kNumbers))];
        size_t end = at;
        while (end < input.size() && std::isdigit(input[end])) ++end;
        input.erase(place, input.begin() + end);
        input.insert(input.begin() + at, number, number + std::strlen(number));
        break;
      }
      default:  // truncate
        if (Below(4) == 0) input.resize(at);
        break;
    }
  }

  std::mt19937_64 random_;
  size_t max_size_;
};

bool Read(const std::filesystem::path& path, std::vector<Input>* corpus) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::cerr << "fuzz: cannot read " << path << "\n";
    return false;
  }
  corpus->emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  return true;
}

bool ReadAll(const std::string& argument, std::vector<Input>* corpus) {
  std::error_code error;
  if (!std::filesystem::is_directory(argument, error)) return Read(argument, corpus);
  std::vector<std::filesystem::path> paths;  // sorted, so that a seed repeats
  for (const auto& entry : std::filesystem::directory_iterator(argument, error)) {
    if (entry.is_regular_file(error)) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return std::all_of(paths.begin(), paths.end(),
                     [corpus](const auto& path) { return Read(path, corpus); });
}

}  // namespace

int main(int argc, char** argv) {
  int64_t runs = -1, seconds = -1, seed = 1, max_size = 4096;
  std::vector<Input> corpus = {{}};
  for (int i = 1; i < argc; ++i) {
    const absl::string_view argument = argv[i];
    if (argument.empty() || argument[0] != '-') {
      if (!ReadAll(argv[i], &corpus)) return 1;
      continue;
    }
    const struct {
      absl::string_view name;
      int64_t* value;
    } kFlags[] = {{"-runs=", &runs},
                  {"-max_total_time=", &seconds},
                  {"-seed=", &seed},
                  {"-max_len=", &max_size}};
    for (const auto& flag : kFlags) {
      if (argument.substr(0, flag.name.size()) == flag.name &&
          !absl::SimpleAtoi(argument.substr(flag.name.size()), flag.value)) {
        std::cerr << "fuzz: " << argument << " has no number\n";
        return 1;
      }
    }
  }
  if (runs < 0) runs = seconds < 0 ? 1000000 : INT64_MAX;
  if (seconds < 0) seconds = 10;

  if (const char* directory = std::getenv("TEST_UNDECLARED_OUTPUTS_DIR")) {
    std::snprintf(crash_path, sizeof(crash_path), "%s/crash", directory);
  }
  for (int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) signal(number, OnCrash);

  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [start] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  for (const Input& input : corpus) Run(input);
  Mutator mutator(static_cast<uint64_t>(seed), static_cast<size_t>(max_size));
  int64_t done = 0;
  // Check the clock rarely: it costs more than a short run.
  for (; done < runs && (done % 64 != 0 || elapsed() < static_cast<double>(seconds)); ++done) {
    Run(mutator.Make(corpus));
  }
  std::cout << "fuzz: " << corpus.size() << " inputs of the corpus and " << done
            << " mutations of them in " << elapsed() << " s\n";
  return 0;
}
