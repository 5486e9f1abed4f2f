// Measures the lessons:
//
//   bazel run --config=gpu //profiling/microbench -- [--json=FILE] [LESSON …]
//
// Prints a table per lesson: the time of each variant, and its counts, measured and expected.
#include <algorithm>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "attention/cuda/machine.h"
#include "profiling/microbench/measure.h"
#include "tools/lib/arguments.h"
#include "tools/lib/interrupt.h"
#include "tools/lib/json.h"
#include "tools/lib/similar_names.h"
#include "tools/lib/table.h"

namespace attnlab::profiling {
namespace {

constexpr char kEnvironment[] =
    "ATTNLAB_COMMIT  commit to record in the JSON\n"
    "ATTNLAB_CUPTI, CUDA_HOME, CUDA_PATH  where CUPTI is: see `attnlab profile --help`";

constexpr char kExitCodes[] =
    "0    done, and all counts are as expected\n"
    "1    a count is not as expected, or a kernel's result is wrong\n"
    "2    bad arguments, or a file that cannot be written\n"
    "3    not possible here: no GPU, no CUPTI, counters restricted to administrators, no memory\n"
    "130  interrupted (Ctrl-C)";

struct Flags {
  std::string json;
  std::vector<std::string> names;
  std::vector<const LessonEntry*> lessons;
};

ArgumentParser MakeParser(Flags* flags) {
  ArgumentParser parser("microbench",
                        "Measures teaching kernels on the first GPU, and compares its counters "
                        "with the expected values.");
  parser.AddPositional("[LESSON ...]", &flags->names);
  parser.AddString("json", "FILE", &flags->json,
                   "Also write the measurements as JSON: the finished lessons, if one fails or "
                   "Ctrl-C ends the run.");
  std::string lessons;
  for (const LessonEntry& entry : Lessons()) {
    absl::StrAppend(&lessons, absl::StrFormat("%-16s%s\n", entry.name, entry.question));
  }
  parser.AddSection("Lessons [all]", lessons);
  parser.AddSection("Environment", kEnvironment);
  parser.AddSection("Exit codes", kExitCodes);
  return parser;
}

absl::Status FindLessons(Flags* flags) {
  std::vector<std::string> names;
  for (const LessonEntry& entry : Lessons()) names.push_back(entry.name);
  for (const std::string& name : flags->names.empty() ? names : flags->names) {
    const auto entry =
        std::find_if(Lessons().begin(), Lessons().end(),
                     [&name](const LessonEntry& candidate) { return name == candidate.name; });
    if (entry == Lessons().end()) {
      return absl::InvalidArgumentError(absl::StrCat("there is no lesson \"", name, "\"",
                                                     DidYouMean(name, names),
                                                     "\n`microbench --help` lists them"));
    }
    flags->lessons.push_back(&*entry);
  }
  return absl::OkStatus();
}

std::string Range(const Expectation& e) {
  return absl::StrCat(Digits(e.least), " to ", Digits(e.most));
}

// Prints the lesson and adds it to the JSON. Returns whether all counts are as expected.
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

int Fail(const absl::Status& status, int code) {
  std::cerr << "microbench: " << status.message() << "\n";
  return code;
}

// The exit status for an error of measuring.
int CodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 0;
    case absl::StatusCode::kInvalidArgument:  // $ATTNLAB_COMPUTE_CAPABILITY
      return 2;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kNotFound:  // CUPTI does not know the chip, or the chip lacks a metric
    case absl::StatusCode::kResourceExhausted:
      return 3;
    default:
      return 1;
  }
}

int Run(const Flags& flags) {
  absl::StatusOr<JsonFile> file = JsonFile::Create(flags.json);
  if (!file.ok()) return Fail(file.status(), 2);
  const absl::StatusOr<DeviceInfo> gpu = InfoOf(Device::Cuda(0));
  if (!gpu.ok()) return Fail(gpu.status(), CodeOf(gpu.status()));
  Json json = Json::array();
  int code = 0;
  {
    const Interrupt interrupt;
    for (const LessonEntry* entry : flags.lessons) {
      if (Interrupt::Pressed()) break;
      const absl::StatusOr<std::vector<MeasuredVariant>> variants = MeasureLesson(*entry);
      if (!variants.ok()) {
        code = Fail(variants.status(), CodeOf(variants.status()));
        break;
      }
      if (!Show(*entry, *variants, &json)) code = 1;
      std::cout.flush();
    }
  }
  // After an interrupt, writes the lessons that are done, but never replaces a file by nothing.
  if (!json.empty()) {
    const std::string commit = CommitOfEnvironment();
    const absl::Status s = file->Write({{"gpu", gpu->name},
                                        {"commit", commit.empty() ? Json(nullptr) : Json(commit)},
                                        {"lessons", json}});
    if (!s.ok()) return Fail(s, 2);
  }
  if (!std::cout) return Fail(absl::UnavailableError("cannot write to the standard output"), 2);
  if (!Interrupt::Pressed()) return code;
  return Fail(absl::CancelledError(absl::StrCat("interrupted; ", json.size(), " of ",
                                                flags.lessons.size(), " lessons were done")),
              130);
}

int Main(int argc, char** argv) {
  Flags flags;
  if (const std::optional<int> code = MakeParser(&flags).ParseMain(argc, argv)) return *code;
  const absl::Status s = FindLessons(&flags);
  return s.ok() ? Run(flags) : Fail(s, 2);
}

}  // namespace
}  // namespace attnlab::profiling

int main(int argc, char** argv) { return attnlab::profiling::Main(argc, argv); }
