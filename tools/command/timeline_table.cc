#include "tools/command/timeline_table.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "profiling/kernel_name.h"
#include "tools/lib/table.h"

namespace attnlab::command {
namespace {

using profiling::Activity;
using Interval = std::pair<double, double>;

// The time that at least one of them covers. Sorts them.
double Covered(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end());
  double sum = 0, until = 0;
  for (const auto& [begin, end] : intervals) {
    sum += std::max(0.0, end - std::max(begin, until));
    until = std::max(until, end);
  }
  return sum;
}

}  // namespace

std::map<uint32_t, GpuTime> GpuTimes(const std::vector<Activity>& timeline) {
  std::map<uint32_t, std::vector<Interval>> kernels, copies;
  for (const Activity& a : timeline) {
    (a.kind == Activity::Kind::kKernel ? kernels : copies)[a.gpu].push_back(
        {a.begin, a.begin + a.seconds});
  }
  std::map<uint32_t, GpuTime> times;
  for (const Activity& a : timeline) {
    std::vector<Interval> all = kernels[a.gpu];
    all.insert(all.end(), copies[a.gpu].begin(), copies[a.gpu].end());
    const double busy = Covered(all), computing = Covered(kernels[a.gpu]);
    times[a.gpu] = {computing, Covered(copies[a.gpu]), busy - computing,
                    profiling::SpanOf(timeline) - busy};
  }
  return times;
}

void PrintTimeline(const std::vector<Activity>& timeline, const Streams& streams) {
  Table table({{"GPU", Table::kRight},
               {"begin us", Table::kRight},
               {"us", Table::kRight},
               {"stream", Table::kRight},
               {"what", Table::kLeft}});
  for (const Activity& a : timeline) {
    const bool is_kernel = a.kind == Activity::Kind::kKernel;
    table.AddRow({absl::StrCat(a.gpu), Digits(1e6 * a.begin), Digits(1e6 * a.seconds),
                  absl::StrCat(a.stream), is_kernel ? profiling::ShortName(a.name) : a.name});
  }
  Table sums({{"GPU", Table::kRight},
              {"kernels ms", Table::kRight},
              {"copies ms", Table::kRight},
              {"copies alone ms", Table::kRight},
              {"nothing ms", Table::kRight}});
  for (const auto& [gpu, time] : GpuTimes(timeline)) {
    sums.AddRow({absl::StrCat(gpu), Digits(1e3 * time.kernels), Digits(1e3 * time.copies),
                 Digits(1e3 * time.exposed), Digits(1e3 * time.nothing)});
  }
  streams.out << table.Text(streams.colours, streams.columns) << "\n"
              << sums.Text(streams.colours, streams.columns);
}

Json TraceOf(const std::vector<Activity>& timeline) {
  Json events = Json::array();
  for (const auto& [gpu, time] : GpuTimes(timeline)) {
    events.push_back({{"name", "process_name"},
                      {"ph", "M"},
                      {"pid", gpu},
                      {"args", {{"name", absl::StrCat("GPU ", gpu)}}}});
  }
  for (const Activity& a : timeline) {
    const bool is_kernel = a.kind == Activity::Kind::kKernel;
    events.push_back({{"name", is_kernel ? profiling::ShortName(a.name) : a.name},
                      {"ph", "X"},
                      {"pid", a.gpu},
                      {"tid", a.stream},
                      {"ts", 1e6 * a.begin},
                      {"dur", 1e6 * a.seconds},
                      {"args", {{"name", a.name}}}});
  }
  return {{"displayTimeUnit", "ns"}, {"traceEvents", std::move(events)}};
}

}  // namespace attnlab::command
