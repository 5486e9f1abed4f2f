// The lessons, measured:
//
//   bazel run --config=gpu //profiling/microbench -- [--json=FILE] [NAME …]
//
// Prints a table a lesson: the time of each variant, what was counted and what was expected. Exit
// status: 0; 1 where a count is not as expected or a result is wrong; 2 for what cannot be run.
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "nlohmann/json.hpp"
#include "profiling/microbench/measure.h"
#include "tools/files.h"
#include "tools/table.h"

namespace attnlab::profiling {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kUsage[] =
    "microbench [--json=FILE] [NAME ...]\n\n"
    "Measures teaching kernels, and holds the GPU's counters against what they must say. Names:";

struct Flags {
  std::string json;
  std::vector<const LessonEntry*> lessons;
};

absl::StatusOr<Flags> ParseFlags(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    if (absl::ConsumePrefix(&argument, "--json=")) {
      if (argument.empty()) return absl::InvalidArgumentError("--json: names no file");
      flags.json = ResolvePath(argument);
      continue;
    }
    const LessonEntry* found = nullptr;
    for (const LessonEntry& entry : Lessons()) {
      if (argument == entry.name) found = &entry;
    }
    if (found == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(argument, " is neither --json=FILE nor a lesson; --help names them"));
    }
    flags.lessons.push_back(found);
  }
  if (flags.lessons.empty()) {
    for (const LessonEntry& entry : Lessons()) flags.lessons.push_back(&entry);
  }
  return flags;
}

void Help() {
  std::cout << kUsage << "\n\n";
  for (const LessonEntry& entry : Lessons()) {
    std::printf("  %-16s %s\n", entry.name, entry.question);
  }
}

std::string Range(const Expectation& e) {
  return absl::StrCat(Digits(e.least), " to ", Digits(e.most));
}

// Prints the lesson and adds it to the JSON; whether all counts are as expected.
bool Show(const LessonEntry& entry, const std::vector<MeasuredVariant>& variants, Json* json) {
  Table table({{"variant", Table::kLeft},
               {"time", Table::kRight},
               {"counted", Table::kLeft},
               {"value", Table::kRight},
               {"expected", Table::kRight},
               {"", Table::kLeft}});
  Json rows = Json::array();
  bool as_expected = true;
  for (const MeasuredVariant& variant : variants) {
    Json counts = Json::array();
    for (size_t i = 0; i < variant.measured.size(); ++i) {
      const Measured& m = variant.measured[i];
      as_expected &= m.AsExpected();
      table.AddRow({{i == 0 ? variant.name : ""},
                    {i == 0 ? Seconds(variant.seconds) : ""},
                    {m.expectation.counted},
                    {Digits(m.value)},
                    {Range(m.expectation)},
                    {m.AsExpected() ? "" : "NOT AS EXPECTED"}});
      counts.push_back({{"counted", m.expectation.counted},
                        {"value", m.value},
                        {"least", m.expectation.least},
                        {"most", m.expectation.most},
                        {"as_expected", m.AsExpected()}});
    }
    rows.push_back({{"variant", variant.name}, {"seconds", variant.seconds}, {"counts", counts}});
  }
  std::cout << entry.name << ": " << entry.question << "\n\n" << table.Markdown() << "\n";
  json->push_back({{"lesson", entry.name}, {"question", entry.question}, {"variants", rows}});
  return as_expected;
}

absl::Status Write(const std::string& path, const Json& lessons) {
  int ordinal = 0;
  cudaDeviceProp properties = {};
  if (cudaGetDevice(&ordinal) == cudaSuccess) cudaGetDeviceProperties(&properties, ordinal);
  const char* commit = std::getenv("ATTNLAB_COMMIT");
  const Json json = {{"gpu", properties.name},
                     {"commit", commit == nullptr ? Json(nullptr) : Json(commit)},
                     {"lessons", lessons}};
  const std::string text = json.dump(1) + "\n";
  absl::StatusOr<AtomicFile> file = AtomicFile::Create(path);
  if (!file.ok()) return file.status();
  const absl::Status s = file->Append(text.data(), static_cast<int64_t>(text.size()));
  return s.ok() ? file->Commit() : s;
}

int Main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--help" || std::string(argv[i]) == "-h") {
      Help();
      return 0;
    }
  }
  const absl::StatusOr<Flags> flags = ParseFlags(argc, argv);
  if (!flags.ok()) {
    std::cerr << "microbench: " << flags.status().message() << "\n";
    return 2;
  }
  Json json = Json::array();
  bool as_expected = true;
  for (const LessonEntry* entry : flags->lessons) {
    const absl::StatusOr<std::vector<MeasuredVariant>> variants = MeasureLesson(*entry);
    if (!variants.ok()) {
      std::cerr << "microbench: " << variants.status().message() << "\n";
      return variants.status().code() == absl::StatusCode::kInternal ? 1 : 2;
    }
    as_expected &= Show(*entry, *variants, &json);
  }
  if (!flags->json.empty()) {
    if (const absl::Status s = Write(flags->json, json); !s.ok()) {
      std::cerr << "microbench: " << s.message() << "\n";
      return 2;
    }
  }
  return as_expected ? 0 : 1;
}

}  // namespace
}  // namespace attnlab::profiling

int main(int argc, char** argv) { return attnlab::profiling::Main(argc, argv); }
