#include "tools/command/verify_accuracy.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "attention/core/device.h"
#include "attention/core/dtype.h"
#include "attention/fp8/accuracy.h"
#include "tools/command/machine.h"
#include "tools/command/version.h"
#include "tools/lib/interrupt.h"
#include "tools/lib/json.h"
#include "tools/lib/table.h"
#include "tools/lib/terminal.h"

namespace attnlab::command {
namespace {

std::string LineWithoutDType(AttentionProblem problem) {
  problem.dtype = DType::kFloat32;
  return absl::StrReplaceAll(problem.ToString(), {{",dtype=fp32", ""}});
}

}  // namespace

int VerifyAccuracy(const std::vector<AttentionProblem>& problems, const std::string& device,
                   int64_t seed, const Formats& formats, ResultFiles& files,
                   const Streams& streams) {
  const absl::StatusOr<Device> where = ParseDevice(device == "auto" ? "cpu" : device);
  if (!where.ok()) return Fail(streams, "verify", where.status());
  std::vector<Json> rows;
  bool interrupted = false;
  // Each table has all dtypes: problems that differ in theirs are one.
  struct Once {
    std::string line;
    AttentionProblem problem;
  };
  std::vector<Once> once;
  for (const AttentionProblem& problem : problems) {
    const std::string line = LineWithoutDType(problem);
    const auto same = [&](const Once& o) { return o.line == line; };
    if (std::none_of(once.begin(), once.end(), same)) once.push_back({line, problem});
  }
  Progress progress(stderr, fp8::kAccuracySteps * static_cast<int64_t>(once.size()));
  int64_t begun = 0;
  for (const Once& o : once) {
    const std::string& line = o.line;
    const StopOnCtrlC stop("verify");
    const auto found = fp8::MeasureAccuracy(
        o.problem, *where, static_cast<uint64_t>(seed),
        [&](absl::string_view what) { progress.Show(begun++, absl::StrCat(what, " ", line)); });
    interrupted = Interrupt::Pressed();
    if (interrupted) break;
    if (!found.ok()) return Fail(streams, "verify", found.status());
    Table table({{"", Table::kLeft},
                 {"kernel", Table::kLeft},
                 {"RMSE", Table::kRight},
                 {"largest error", Table::kRight}});
    for (const fp8::Accuracy& a : *found) {
      table.AddRow({a.name, a.kernel, ErrorNumber(a.rmse), ErrorNumber(a.largest)});
      rows.push_back({{"problem", line},
                      {"numbers", a.name},
                      {"kernel", a.kernel},
                      {"seed", seed},
                      {"rmse", a.rmse},
                      {"largest_error", a.largest}});
    }
    progress.Clear();
    if (formats.Tables()) {
      streams.out << line << "\n\n" << table.Text(streams.colours, streams.columns) << "\n";
    }
  }
  if (!interrupted || !rows.empty()) {
    const Json json = {
        {"command", "verify"}, {"attnlab", AttnlabJson()}, {"date", UtcNow()}, {"rows", rows}};
    const absl::Status s = files.Write(json, rows, streams);
    if (!s.ok()) return Fail(streams, "verify", s);
  }
  streams.out << std::flush;
  return interrupted ? Interrupted(streams, "verify", rows.empty()) : kOk;
}

}  // namespace attnlab::command
