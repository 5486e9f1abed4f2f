#include "tools/command/verify_accuracy.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
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

int VerifyAccuracy(const std::vector<AttentionProblem>& problems, const std::string& device,
                   int64_t seed, const Formats& formats, ResultFiles& files,
                   const Streams& streams) {
  const absl::StatusOr<Device> where = ParseDevice(device == "auto" ? "cpu" : device);
  if (!where.ok()) return Fail(streams, "verify", where.status());
  std::vector<Json> rows;
  bool interrupted = false;
  Progress progress(stderr, fp8::kAccuracySteps * static_cast<int64_t>(problems.size()));
  int64_t begun = 0;
  std::vector<std::string> done;
  for (const AttentionProblem& problem : problems) {
    // Each has all dtypes: problems that differ in theirs are one.
    AttentionProblem of_fp32 = problem;
    of_fp32.dtype = DType::kFloat32;
    std::string line = of_fp32.ToString();
    line.erase(line.find(",dtype=fp32"), sizeof(",dtype=fp32") - 1);
    if (std::find(done.begin(), done.end(), line) != done.end()) continue;
    done.push_back(line);
    const StopOnCtrlC stop("verify");
    const auto found = fp8::MeasureAccuracy(
        problem, *where, static_cast<uint64_t>(seed),
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
