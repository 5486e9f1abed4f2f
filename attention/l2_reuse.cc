#include "attention/l2_reuse.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>

namespace attnlab {
namespace {

bool HasTwoParts(const DeviceInfo& device) {
  switch (device.compute_capability) {
    case 80:
    case 90:
    case 100:
    case 103:
      return true;
    default:
      return false;
  }
}

}  // namespace

double L2BytesFor(const DeviceInfo& device, double readers) {
  const auto bytes = static_cast<double>(device.last_level_cache_bytes);
  if (!HasTwoParts(device)) return bytes;
  // That none of them is beside the other part.
  const double in_one = std::exp2(-std::max(readers, 1.0));
  return bytes / (2 - in_one);
}

double L2BytesSurelyFor(const DeviceInfo& device, double readers) {
  return L2BytesFor(device, readers) * 2 / 3;
}

Traffic WithL2InDoubt(const DeviceInfo& device,
                      absl::FunctionRef<Traffic(const DeviceInfo&)> model) {
  Traffic traffic = model(device);
  Traffic::Between all = traffic.Reads();
  for (const double size : {2. / 3, 3. / 2}) {
    DeviceInfo other = device;
    other.last_level_cache_bytes =
        static_cast<int64_t>(size * static_cast<double>(device.last_level_cache_bytes));
    const Traffic::Between reads = model(other).Reads();
    all.least = std::min(all.least, reads.least);
    all.most = std::max(all.most, reads.most);
  }
  const auto least = static_cast<double>(all.least), most = static_cast<double>(all.most);
  traffic.reads_between = std::nullopt;
  if (most > 1.1 * least) {
    traffic.reads_between = all;
  } else if (all.most > all.least) {
    const auto value = static_cast<double>(traffic.bytes_read);
    traffic.bytes_read = WholeBytes(std::clamp(value, most / 1.05, least / 0.95));
  }
  return traffic;
}

void L2Steps::Add(std::initializer_list<Access> reads, std::initializer_list<Access> writes) {
  for (const Access& read : reads) bytes_read_ += read.bytes * (1 - PartFound(read, reads, writes));
  for (const Access& write : writes) bytes_written_ += write.bytes;
  Step step;
  for (const Access& read : reads) Note(read, &step);
  for (const Access& write : writes) Note(write, &step);
  steps_.push_back(std::move(step));
}

void L2Steps::Note(const Access& access, Step* step) {
  for (Access& known : *step) {
    if (known.tensor != access.tensor) continue;
    known.bytes = std::max(known.bytes, access.bytes);
    return;
  }
  step->push_back(access);
}

bool L2Steps::Uses(const Step& step, int tensor) {
  return std::any_of(step.begin(), step.end(), [&](const Access& a) { return a.tensor == tensor; });
}

double L2Steps::PartFound(const Access& read, std::initializer_list<Access> reads,
                          std::initializer_list<Access> writes) const {
  size_t last = steps_.size();
  while (last > 0 && !Uses(steps_[last - 1], read.tensor)) --last;
  if (last == 0) return 0;  // it is used for the first time
  const Step& before = steps_[last - 1];
  Step between, now;
  for (size_t i = last; i < steps_.size(); ++i) {
    for (const Access& access : steps_[i]) Note(access, &between);
  }
  for (const Access& access : reads) Note(access, &now);
  for (const Access& access : writes) Note(access, &now);

  // What was used since: of the tensor's first byte, the rest of the step that used it last; of its
  // last byte, what this step has used by then. Linear in between.
  double first = 0, end = 0;
  for (const Access& access : between) first += access.bytes, end += access.bytes;
  for (const Access& access : before) first += Uses(between, access.tensor) ? 0 : access.bytes;
  for (const Access& access : now) end += Uses(between, access.tensor) ? 0 : access.bytes;
  if (first <= l2_bytes_ && end <= l2_bytes_) return 1;
  if (first > l2_bytes_ && end > l2_bytes_) return 0;
  return (l2_bytes_ - std::min(first, end)) / std::abs(end - first);
}

}  // namespace attnlab
