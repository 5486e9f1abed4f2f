#include "attention/tune/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "attention/cuda/backend.h"
#include "tools/lib/files.h"
#include "tools/lib/json.h"

extern const char kSourcesDigest[];  // sources_digest.bzl

namespace attnlab::tune {
namespace {

constexpr int64_t kMostBytes = int64_t{16} << 20;
constexpr char kFormat[] = "attnlab tuning 1";  // changes with the meaning of entries

struct Entry {
  Key key;
  Choice choice;
  std::string date;
};

Json JsonOf(const Entry& entry) {
  return {{"device", entry.key.device},
          {"driver", entry.key.driver},
          {"build", entry.key.build},
          {"kernel", entry.key.kernel},
          {"problem", entry.key.problem},
          {"config", entry.choice.config.ToString()},
          {"seconds", entry.choice.seconds},
          {"default_seconds", entry.choice.default_seconds},
          {"date", entry.date}};
}

// Whether `json` has text at the key, which is then `*text`.
bool GetText(const Json& json, const char* key, std::string* text) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_string()) return false;
  *text = found->get<std::string>();
  return true;
}

bool GetSeconds(const Json& json, const char* key, double* seconds) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number()) return false;
  *seconds = found->get<double>();
  return std::isfinite(*seconds) && *seconds > 0;
}

std::optional<Entry> EntryOf(const Json& json) {
  Entry entry;
  std::string config;
  if (!json.is_object() || !GetText(json, "device", &entry.key.device) ||
      !GetText(json, "driver", &entry.key.driver) || !GetText(json, "build", &entry.key.build) ||
      !GetText(json, "kernel", &entry.key.kernel) ||
      !GetText(json, "problem", &entry.key.problem) || !GetText(json, "config", &config) ||
      !GetText(json, "date", &entry.date) || !GetSeconds(json, "seconds", &entry.choice.seconds) ||
      !GetSeconds(json, "default_seconds", &entry.choice.default_seconds)) {
    return std::nullopt;
  }
  absl::StatusOr<LaunchConfig> parsed = LaunchConfig::Parse(config);
  if (!parsed.ok()) return std::nullopt;
  entry.choice.config = *std::move(parsed);
  return entry;
}

// DataLoss if the file is not one that Write() has written; no entries if there is none.
absl::StatusOr<std::vector<Entry>> Read(const std::string& path) {
  std::error_code error;
  if (std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error)) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": is not a regular file"));
  }
  const absl::StatusOr<std::string> text = ReadFile(path, kMostBytes);
  if (absl::IsNotFound(text.status())) return std::vector<Entry>();
  if (absl::IsOutOfRange(text.status())) {
    return absl::DataLossError(absl::StrCat(path, ": is no tuning cache: it is too large"));
  }
  if (!text.ok()) return text.status();
  const Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return absl::DataLossError(absl::StrCat(path, ": is damaged"));
  std::string format;
  if (!json.is_object() || !GetText(json, "format", &format) || format != kFormat ||
      !json.contains("entries") || !json["entries"].is_array()) {
    return absl::DataLossError(
        absl::StrCat(path, ": is no tuning cache of this version (", kFormat, ")"));
  }
  std::vector<Entry> entries;
  for (const Json& item : json["entries"]) {
    std::optional<Entry> entry = EntryOf(item);
    if (!entry) {
      return absl::DataLossError(
          absl::StrCat(path, ": is damaged: entry ", entries.size(), " is not one"));
    }
    entries.push_back(*std::move(entry));
  }
  return entries;
}

absl::Status Write(const std::string& path, const std::vector<Entry>& entries) {
  Json rows = Json::array();
  for (const Entry& entry : entries) rows.push_back(JsonOf(entry));
  return WriteFile(path, Dump({{"format", kFormat}, {"entries", rows}}));
}

// Held while it lives, by one process at a time. The system releases it when a process dies.
class Lock {
 public:
  static absl::StatusOr<Lock> Take(const std::string& path) {
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return ErrnoStatus("cannot open it", path, errno);
    Lock lock(fd);
    const absl::Time end = absl::Now() + absl::Seconds(Cache::kLockSeconds);
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) return ErrnoStatus("cannot lock it", path, errno);
      if (absl::Now() > end) {
        return absl::UnavailableError(absl::StrCat(path, ": another process has held the lock for ",
                                                   Cache::kLockSeconds, " s"));
      }
      absl::SleepFor(absl::Milliseconds(5));
    }
    return lock;
  }
  Lock(Lock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Lock& operator=(Lock&&) = delete;
  ~Lock() {
    if (fd_ >= 0) close(fd_);
  }

 private:
  explicit Lock(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace

absl::StatusOr<Key> KeyOf(const DeviceInfo& device, const std::string& kernel,
                          const std::string& problem) {
  Key key;
  key.kernel = kernel;
  key.problem = problem;
  key.build = kSourcesDigest;
  if (device.device.kind == DeviceKind::kCpu) {
    key.device = absl::StrCat(device.name, ", ", device.threads, " threads");
    return key;
  }
  key.device = absl::StrCat(device.name, ", ", device.multiprocessors, " multiprocessors");
  const absl::StatusOr<cuda_backend::Versions> versions = cuda_backend::GetVersions();
  if (!versions.ok()) return versions.status();
  key.driver = versions->driver.empty() ? versions->cuda_driver : versions->driver;
  absl::StrAppend(&key.build, ", CUDA ", versions->cuda_runtime);
  return key;
}

std::optional<Choice> Cache::Find(const Key& key, std::string* remark) const {
  const absl::StatusOr<std::vector<Entry>> entries = Read(path_);
  if (!entries.ok()) {
    *remark = std::string(entries.status().message());
    return std::nullopt;
  }
  for (const Entry& entry : *entries) {
    if (entry.key == key) return entry.choice;
  }
  return std::nullopt;
}

absl::Status Cache::Store(const Key& key, const Choice& choice, std::string* remark) const {
  std::error_code error;
  // By way of a link and without one, the lock is the same.
  const std::string path = std::filesystem::weakly_canonical(path_, error).string();
  if (error) return ErrnoStatus("cannot find it", path_, error.value());
  const std::string directory = std::filesystem::path(path).parent_path().string();
  if (!directory.empty()) std::filesystem::create_directories(directory, error);
  if (error) return ErrnoStatus("cannot create it", directory, error.value());
  const absl::StatusOr<Lock> lock = Lock::Take(path + ".lock");
  if (!lock.ok()) return lock.status();

  absl::StatusOr<std::vector<Entry>> entries = Read(path);
  if (absl::IsDataLoss(entries.status())) {
    std::string kept = path + ".damaged";
    for (int i = 2; std::filesystem::exists(kept, error); ++i) {
      kept = absl::StrCat(path, ".damaged.", i);
    }
    if (std::rename(path.c_str(), kept.c_str()) != 0) {
      return ErrnoStatus(absl::StrCat("cannot move it to ", kept), path, errno);
    }
    *remark = absl::StrCat(entries.status().message(), "; it is ", kept, " now");
    entries = std::vector<Entry>();
  }
  if (!entries.ok()) return entries.status();
  std::vector<Entry> kept;
  for (Entry& entry : *entries) {
    if (!(entry.key == key)) kept.push_back(std::move(entry));
  }
  kept.push_back({key, choice, UtcNow()});
  if (kept.size() > kMostEntries) kept.erase(kept.begin(), kept.end() - kMostEntries);
  return Write(path, kept);
}

}  // namespace attnlab::tune
