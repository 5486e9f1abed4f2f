#include "tools/command/process_trials.h"

#include <string.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tools/command/command.h"
#include "tools/lib/interrupt.h"
#include "tools/lib/process.h"

namespace attnlab::command {
namespace {

// What a process may take besides its timed calls: to start, to make inputs, to ask the oracle.
constexpr double kPatience = 120;

// The first line of the text.
std::string FirstLine(absl::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

// The first line of what the row says went wrong.
std::string MessageOf(const Json& row) {
  const auto found = row.find("message");
  if (found == row.end() || !found->is_string()) return "";
  return FirstLine(found->get<std::string>());
}

bool Has(const Json& row, const char* key, absl::string_view text) {
  const auto found = row.find(key);
  return found != row.end() && found->is_string() && found->get<std::string>() == text;
}

absl::StatusOr<double> Number(const Json& row, const char* key) {
  const auto found = row.find(key);
  if (found != row.end() && found->is_number()) return found->get<double>();
  return absl::InternalError(absl::StrCat("attnlab bench printed no ", key));
}

tune::Timed TimedOf(const Json& row) {
  tune::Timed timed;
  if (Has(row, "verdict", "failed")) {
    timed.status = absl::InternalError(MessageOf(row));
    return timed;
  }
  const std::pair<const char*, double*> kFields[] = {{"median_seconds", &timed.timing.median},
                                                     {"p10_seconds", &timed.timing.p10},
                                                     {"p90_seconds", &timed.timing.p90},
                                                     {"noise", &timed.timing.noise}};
  for (const auto& [key, field] : kFields) {
    const absl::StatusOr<double> number = Number(row, key);
    if (!number.ok()) timed.status.Update(number.status());
    *field = number.value_or(0);
  }
  return timed;
}

}  // namespace

absl::StatusOr<std::vector<Json>> ProcessTrials::Rows(const std::string& subcommand,
                                                      absl::Span<const Plan> plans,
                                                      const std::vector<std::string>& flags,
                                                      double timeout_seconds) const {
  const Plan& first = plans[0];
  std::vector<std::string> words = {subcommand,
                                    absl::StrCat("--kernel=", first.kernel->traits().name),
                                    absl::StrCat("--device=", ToString(first.device.device)),
                                    absl::StrCat("--problem=", first.problem.ToString()), "--json"};
  for (const Plan& plan : plans) {
    words.push_back(
        absl::StrCat("--config=", plan.config.empty() ? "default" : plan.config.ToString()));
  }
  words.insert(words.end(), flags.begin(), flags.end());
  ProcessOptions options;
  options.inherit_environment = true;
  options.timeout_seconds = timeout_seconds;
  const ProcessResult r = RunProcess(program_, words, options);
  if (Interrupt::Pressed()) return absl::CancelledError("interrupted");
  if (r.exit_code == 128 + SIGKILL) {
    return absl::AbortedError(absl::StrCat("killed, at the latest after ", timeout_seconds, " s"));
  }
  if (r.exit_code > 128) {
    return absl::AbortedError(absl::StrCat("crashed: ", strsignal(r.exit_code - 128)));
  }
  if (r.exit_code == kImpossible) return absl::UnavailableError(FirstLine(r.err));
  const Json json = Json::parse(r.out, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("rows") || !json["rows"].is_array() ||
      json["rows"].size() != plans.size()) {
    return absl::InternalError(FirstLine(r.err));
  }
  return json["rows"].get<std::vector<Json>>();
}

absl::Status ProcessTrials::Check(const Plan& plan) {
  const absl::StatusOr<std::vector<Json>> rows = Rows("verify", {&plan, 1}, {}, kPatience);
  if (!rows.ok()) return rows.status();
  if (Has((*rows)[0], "verdict", "ok")) return absl::OkStatus();
  return absl::DataLossError(MessageOf((*rows)[0]));
}

absl::StatusOr<std::vector<tune::Timed>> ProcessTrials::TimeTogether(absl::Span<const Plan> plans,
                                                                     double seconds,
                                                                     double max_noise) const {
  const double most = 4 * seconds;
  const absl::StatusOr<std::vector<Json>> rows =
      Rows("bench", plans,
           {"--verify=false", absl::StrCat("--seconds=", seconds), absl::StrCat("--timeout=", most),
            absl::StrCat("--max_noise=", 100 * max_noise)},
           kPatience + 2 * most * static_cast<double>(plans.size()));
  if (!rows.ok()) return rows.status();
  std::vector<tune::Timed> timed;
  for (const Json& row : *rows) timed.push_back(TimedOf(row));
  return timed;
}

absl::StatusOr<std::vector<tune::Timed>> ProcessTrials::Time(absl::Span<const Plan> plans,
                                                             double seconds, double max_noise) {
  absl::StatusOr<std::vector<tune::Timed>> timed = TimeTogether(plans, seconds, max_noise);
  if (!absl::IsAborted(timed.status())) return timed;
  // Finds the plans that crash, each beside the first one, and times the others without them.
  std::vector<tune::Timed> result(plans.size());
  std::vector<Plan> left = {plans[0]};
  std::vector<size_t> places = {0};
  for (size_t i = 1; i < plans.size(); ++i) {
    const Plan pair[] = {plans[0], plans[i]};
    timed = TimeTogether(pair, 0.01, 1);
    if (absl::IsCancelled(timed.status())) return timed;
    result[i].status = timed.status();
    if (!timed.ok()) continue;
    left.push_back(plans[i]);
    places.push_back(i);
  }
  timed = TimeTogether(left, seconds, max_noise);
  if (!timed.ok()) return timed;
  for (size_t i = 0; i < places.size(); ++i) result[places[i]] = (*timed)[i];
  return result;
}

}  // namespace attnlab::command
