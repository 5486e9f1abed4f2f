// The file that keeps what was tuned.
//
//   Cache cache("/home/me/.cache/attnlab/tuning.json");
//   absl::Status s = cache.Store(key, {config, 1e-3, 2e-3});
//   std::optional<Choice> choice = cache.Find(key, &remark);
//
// Any number of processes may share the file: Store() locks FILE.lock, reads, and replaces the file
// atomically, so that nobody's entries are lost and a killed process leaves the file as it was. A
// file that is damaged, or that is no tuning cache, is never trusted: Find() finds nothing there,
// and Store() moves it to FILE.damaged and begins anew.
#ifndef ATTENTION_TUNE_CACHE_H_
#define ATTENTION_TUNE_CACHE_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/core/device.h"
#include "attention/core/launch_config.h"

namespace attnlab::tune {

// What a choice depends on.
struct Key {
  std::string device;  // "NVIDIA H200, 132 multiprocessors"
  std::string driver;  // its version; "" on the CPU
  std::string build;   // a digest of the sources of all kernels, and the version of CUDA
  std::string kernel;
  std::string problem;  // the representative of the class (problem_class.h), as one line

  friend bool operator==(const Key& a, const Key& b) {
    return a.device == b.device && a.driver == b.driver && a.build == b.build &&
           a.kernel == b.kernel && a.problem == b.problem;
  }
};

// The key on this machine, with this build.
absl::StatusOr<Key> KeyOf(const DeviceInfo& device, const std::string& kernel,
                          const std::string& problem);

struct Choice {
  LaunchConfig config;  // empty: the kernel's own choice
  // Seconds of a call on the representative with `config`, and with the kernel's own choice.
  double seconds = 0, default_seconds = 0;
};

class Cache {
 public:
  // The path of the file. It need not exist.
  explicit Cache(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }

  // The choice for the key, if the file has one. `remark` says what is wrong with the file; it
  // stays empty if nothing is, or if there is no file.
  std::optional<Choice> Find(const Key& key, std::string* remark) const;

  // Adds the choice or replaces that of the same key. Creates the directory if there is none. Of
  // more than kMostEntries, the oldest are dropped. `remark` says where a damaged file went.
  //
  // Unavailable if another process holds the lock for longer than kLockSeconds; the errors of
  // AtomicFile (tools/lib/files.h).
  absl::Status Store(const Key& key, const Choice& choice, std::string* remark) const;

  static constexpr int kMostEntries = 4096;
  static constexpr double kLockSeconds = 10;

 private:
  std::string path_;
};

}  // namespace attnlab::tune

#endif  // ATTENTION_TUNE_CACHE_H_
