// Launch choices that a caller makes for a kernel: tile sizes, splits, threads, the kind of matrix
// instruction. Each family documents the keys that it reads. An empty configuration leaves
// everything to the family.
//
//   absl::StatusOr<LaunchConfig> config = LaunchConfig::Parse("tile_q=64,tile_kv=256");
#ifndef ATTENTION_CORE_LAUNCH_CONFIG_H_
#define ATTENTION_CORE_LAUNCH_CONFIG_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "attention/core/cxx17.h"

namespace attnlab {

class LaunchConfig {
 public:
  LaunchConfig() = default;

  // "key=value,key=value"; an empty line is an empty configuration. InvalidArgument for an
  // empty or repeated key or an empty value.
  static absl::StatusOr<LaunchConfig> Parse(absl::string_view line);

  // Keys in alphabetical order; Parse(ToString()) gives the same configuration.
  std::string ToString() const;

  bool empty() const { return values_.empty(); }

  // In alphabetical order.
  std::vector<std::string> Keys() const;

  void Set(absl::string_view key, absl::string_view value);
  void Set(absl::string_view key, int64_t value);

  // The value of the key, or `otherwise` if the key is not set. GetInteger() returns
  // InvalidArgument if the value is not an integer in low..high, GetBool() if it is neither true nor false.
  std::string Get(absl::string_view key, absl::string_view otherwise) const;
  absl::StatusOr<int64_t> GetInteger(absl::string_view key, int64_t otherwise, int64_t low,
                                     int64_t high) const;
  absl::StatusOr<bool> GetBool(absl::string_view key, bool otherwise) const;

  // InvalidArgument names the first key that is not in `known`, and lists `known`.
  absl::Status CheckKeys(absl::Span<const absl::string_view> known) const;

  friend bool operator==(const LaunchConfig& a, const LaunchConfig& b) {
    return a.values_ == b.values_;
  }

 private:
  std::map<std::string, std::string> values_;
};

}  // namespace attnlab

#endif  // ATTENTION_CORE_LAUNCH_CONFIG_H_
