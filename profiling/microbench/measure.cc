#include "profiling/microbench/measure.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attention/core/statistics.h"
#include "attention/cuda/call.h"
#include "profiling/counters.h"
#include "profiling/l2_flush.h"
#include "profiling/quantities.h"
#include "profiling/timeline.h"

namespace attnlab::profiling {
namespace {

using cuda_backend::ToStatus;

constexpr int kRepetitions = 5;

// What the expectations of a variant name: quantities with the metrics that the chip has for them,
// and metrics.
absl::StatusOr<std::vector<Counted>> CountedOf(const Chip& chip, const Variant& variant) {
  const absl::StatusOr<std::vector<Counted>> all = Resolve(chip, "all");
  if (!all.ok()) return all.status();
  std::vector<Counted> counted;
  for (const Expectation& expectation : variant.expected) {
    const auto quantity = std::find_if(
        all->begin(), all->end(), [&](const Counted& c) { return c.name == expectation.counted; });
    counted.push_back(quantity != all->end()
                          ? *quantity
                          : Counted{expectation.counted, "", {expectation.counted}, 1});
  }
  return counted;
}

absl::Status RunAndCheck(const Variant& variant) {
  absl::Status s = ToStatus(variant.launch(nullptr), "the launch");
  if (s.ok()) s = ToStatus(cudaDeviceSynchronize(), "the kernel");
  if (!s.ok()) return s;
  const std::string wrong = variant.check();
  return wrong.empty() ? absl::OkStatus() : absl::InternalError(wrong);
}

absl::StatusOr<double> SecondsOf(int ordinal, const Variant& variant, L2Flush& flush) {
  std::vector<double> seconds;
  for (int i = 0; i < kRepetitions; ++i) {
    const absl::StatusOr<std::vector<Activity>> timeline = TimelineOf(
        ordinal,
        [&](void* stream) {
          const auto cuda_stream = static_cast<cudaStream_t>(stream);
          const absl::Status s = flush.Flush(cuda_stream);
          return s.ok() ? ToStatus(variant.launch(cuda_stream), "the launch") : s;
        },
        /*before=*/L2Flush::kLaunches);
    if (!timeline.ok()) return timeline.status();
    seconds.push_back(SpanOf(*timeline));
  }
  return Quantile(std::move(seconds), 0.5);
}

absl::StatusOr<std::vector<Measured>> Count(int ordinal, const Chip& chip, const Variant& variant,
                                            L2Flush& flush) {
  const absl::StatusOr<std::vector<Counted>> counted = CountedOf(chip, variant);
  if (!counted.ok()) return counted.status();
  absl::StatusOr<std::unique_ptr<Counters>> counters =
      Counters::Open(ordinal, "", MetricsOf(*counted));
  if (!counters.ok()) return counters.status();
  while (!(*counters)->Done()) {
    if (absl::Status s = flush.Flush(nullptr); !s.ok()) return s;
    absl::StatusOr<Counters::Pass> pass = (*counters)->Begin();
    if (!pass.ok()) return pass.status();
    if (absl::Status s = ToStatus(variant.launch(nullptr), "the launch"); !s.ok()) return s;
    if (absl::Status s = pass->End(); !s.ok()) return s;
  }
  const absl::StatusOr<std::vector<Value>> values = (*counters)->Read();
  if (!values.ok()) return values.status();
  std::vector<Measured> measured;
  for (size_t i = 0; i < counted->size(); ++i) {
    double sum = 0;
    for (const std::string& metric : (*counted)[i].metrics) {
      const auto value = std::find_if(values->begin(), values->end(),
                                      [&](const Value& v) { return v.name == metric; });
      sum += value->value * (*counted)[i].scale;
    }
    measured.push_back({variant.expected[i], sum});
  }
  return measured;
}

}  // namespace

absl::StatusOr<std::vector<MeasuredVariant>> MeasureLesson(const LessonEntry& entry) {
  const auto named = [&](const Variant& variant, const absl::Status& s) {
    return absl::Status(s.code(), absl::StrCat(entry.name, ", ", variant.name, ": ", s.message()));
  };
  int ordinal = 0;
  absl::Status s = ToStatus(cudaGetDevice(&ordinal), "cudaGetDevice");
  if (!s.ok()) return s;
  const absl::StatusOr<std::string> chip_name = ChipOf(ordinal);
  if (!chip_name.ok()) return chip_name.status();
  const absl::StatusOr<Chip> chip = Chip::Open(*chip_name);
  if (!chip.ok()) return chip.status();
  const absl::StatusOr<Gpu> gpu = CurrentGpu();
  if (!gpu.ok()) return gpu.status();
  Lesson lesson;
  if (s = ToStatus(entry.make(*gpu, &lesson), entry.name); !s.ok()) return s;
  absl::StatusOr<std::unique_ptr<L2Flush>> flush = L2Flush::Create(ordinal);
  if (!flush.ok()) return flush.status();
  std::vector<MeasuredVariant> variants;
  for (const Variant& variant : lesson.variants) {
    if (s = RunAndCheck(variant); !s.ok()) return named(variant, s);
    const absl::StatusOr<double> seconds = SecondsOf(ordinal, variant, **flush);
    if (!seconds.ok()) return named(variant, seconds.status());
    absl::StatusOr<std::vector<Measured>> measured = Count(ordinal, *chip, variant, **flush);
    if (!measured.ok()) return named(variant, measured.status());
    variants.push_back({variant.name, *seconds, *std::move(measured)});
  }
  return variants;
}

}  // namespace attnlab::profiling
