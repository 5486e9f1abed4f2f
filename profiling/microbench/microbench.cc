// The lessons, measured:
//
//   bazel run --config=gpu //profiling/microbench -- [--json=FILE] [LESSON …]
//
// Prints a table a lesson: the time of each variant, what was counted and what was expected.
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "attention/machine.h"
#include "nlohmann/json.hpp"
#include "profiling/microbench/measure.h"
#include "tools/arguments.h"
#include "tools/command/interrupt.h"
#include "tools/files.h"
#include "tools/table.h"

namespace attnlab::profiling {
namespace {

using Json = nlohmann::ordered_json;
using command::Interrupt;

constexpr char kHelp[] =
    "Measures teaching kernels on the first GPU, and holds its counters against what they must "
    "say.\n\n"
    "Usage: microbench [--json=FILE] [LESSON ...]\n\n"
    "  --json=FILE  Write what was measured as JSON, too; of the lessons that were done, where "
    "one\n"
    "               fails or Ctrl-C ends it.\n\n"
    "Lessons, all of them where none is named:\n";

constexpr char kExitCodes[] =
    "\nEnvironment:\n"
    "  ATTNLAB_COMMIT  goes into the JSON\n"
    "  ATTNLAB_CUPTI, CUDA_HOME, CUDA_PATH  where CUPTI is: see `attnlab profile --help`\n"
    "\nExit codes:\n"
    "  0    done, and all counts are as expected\n"
    "  1    a count is not as expected, or a kernel's result is wrong\n"
    "  2    bad arguments, or a file that cannot be written\n"
    "  3    not possible on this machine: no GPU, no CUPTI, counters kept to administrators, no "
    "memory\n"
    "  130  interrupted (Ctrl-C)\n";

struct Flags {
  bool help = false;
  std::string json;
  std::vector<const LessonEntry*> lessons;
};

absl::StatusOr<const LessonEntry*> LessonOf(absl::string_view name) {
  std::vector<std::string> names;
  for (const LessonEntry& entry : Lessons()) {
    if (name == entry.name) return &entry;
    names.push_back(entry.name);
  }
  const bool flag = absl::StartsWith(name, "-");
  if (flag) names = {"--json", "--help"};
  const std::string nearest = Nearest(flag ? name.substr(0, name.find('=')) : name, names);
  return absl::InvalidArgumentError(
      absl::StrCat(flag ? "unknown flag " : "there is no lesson \"", name, flag ? "" : "\"",
                   nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?"),
                   "\n`microbench --help` lists flags and lessons"));
}

absl::StatusOr<Flags> ParseFlags(const std::vector<std::string>& arguments) {
  Flags flags;
  for (size_t i = 0; i < arguments.size(); ++i) {
    absl::string_view argument = arguments[i];
    if (argument == "--help" || argument == "-h") {
      flags.help = true;
      return flags;
    }
    const bool json_alone = argument == "--json";
    if (json_alone || absl::ConsumePrefix(&argument, "--json=")) {
      if (!flags.json.empty()) return absl::InvalidArgumentError("--json is given twice");
      if (json_alone) argument = "";
      if (json_alone && i + 1 < arguments.size()) argument = arguments[++i];
      if (argument.empty() || absl::StartsWith(argument, "--")) {
        return absl::InvalidArgumentError("--json needs a value: --json=FILE");
      }
      flags.json = ResolvePath(argument);
      continue;
    }
    const absl::StatusOr<const LessonEntry*> lesson = LessonOf(argument);
    if (!lesson.ok()) return lesson.status();
    flags.lessons.push_back(*lesson);
  }
  if (flags.lessons.empty()) {
    for (const LessonEntry& entry : Lessons()) flags.lessons.push_back(&entry);
  }
  return flags;
}

void PrintHelp() {
  std::cout << kHelp;
  for (const LessonEntry& entry : Lessons()) {
    const std::string name = entry.name;
    std::cout << "  " << name << std::string(name.size() < 16 ? 16 - name.size() : 1, ' ')
              << entry.question << "\n";
  }
  std::cout << kExitCodes;
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

// Where the JSON goes: made first, so that what cannot be written is said before all the measuring.
class JsonFile {
 public:
  // Of no file, if the path is empty.
  static absl::StatusOr<JsonFile> Create(const std::string& path) {
    JsonFile json;
    if (path.empty()) return json;
    absl::StatusOr<AtomicFile> file = AtomicFile::Create(path);
    if (!file.ok()) {
      return absl::Status(file.status().code(), absl::StrCat("--json: ", file.status().message()));
    }
    json.file_.emplace(*std::move(file));
    return json;
  }

  absl::Status Write(const std::string& gpu, const Json& lessons) {
    if (!file_) return absl::OkStatus();
    const char* commit = std::getenv("ATTNLAB_COMMIT");
    const Json json = {{"gpu", gpu},
                       {"commit", commit == nullptr ? Json(nullptr) : Json(commit)},
                       {"lessons", lessons}};
    const std::string text = json.dump(1) + "\n";
    const absl::Status s = file_->Append(text.data(), static_cast<int64_t>(text.size()));
    return s.ok() ? file_->Commit() : s;
  }

 private:
  std::optional<AtomicFile> file_;
};

int Fail(const absl::Status& status, int code) {
  std::cerr << "microbench: " << status.message() << "\n";
  return code;
}

// Of an error of measuring.
int CodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 0;
    case absl::StatusCode::kInvalidArgument:  // $ATTNLAB_COMPUTE_CAPABILITY
      return 2;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kNotFound:  // a chip that CUPTI does not know, or a metric of it
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
  // Of what was done: but for nothing at all no file is replaced.
  if (!json.empty()) {
    if (const absl::Status s = file->Write(gpu->name, json); !s.ok()) return Fail(s, 2);
  }
  if (!std::cout) return Fail(absl::UnavailableError("cannot write to the standard output"), 2);
  if (!Interrupt::Pressed()) return code;
  return Fail(absl::CancelledError(absl::StrCat("interrupted; ", json.size(), " of ",
                                                flags.lessons.size(), " lessons were done")),
              130);
}

int Main(const std::vector<std::string>& arguments) {
  const absl::StatusOr<Flags> flags = ParseFlags(arguments);
  if (!flags.ok()) return Fail(flags.status(), 2);
  if (!flags->help) return Run(*flags);
  PrintHelp();
  return 0;
}

}  // namespace
}  // namespace attnlab::profiling

int main(int argc, char** argv) {
  return attnlab::profiling::Main({argv + (argc > 0 ? 1 : 0), argv + argc});
}
