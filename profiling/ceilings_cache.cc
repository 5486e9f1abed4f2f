#include "profiling/ceilings_cache.h"

#include <cmath>
#include <filesystem>
#include <system_error>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "attention/cuda/backend.h"
#include "attention/cuda/call.h"
#include "cuda_runtime_api.h"
#include "nlohmann/json.hpp"
#include "profiling/ceilings_json.h"
#include "tools/lib/files.h"

namespace attnlab::profiling {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostBytes = 1 << 16;
constexpr int kVersion = 1;  // increment when the way ceilings are measured changes

Json JsonOf(const CeilingsKey& key) {
  return {{"measured_by", kVersion},
          {"gpu", key.gpu},
          {"uuid", key.uuid},
          {"driver", key.driver},
          {"cuda_runtime", key.cuda_runtime}};
}

// NotFound if the file is missing or has another key; another error if the file is damaged.
absl::StatusOr<Ceilings> Read(const std::string& path, const CeilingsKey& key) {
  const absl::StatusOr<std::string> text = ReadFile(path, kMostBytes);
  if (!text.ok()) return text.status();
  const Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("key") || !json.contains("ceilings")) {
    return absl::DataLossError(absl::StrCat(path, ": is damaged"));
  }
  if (json["key"] != JsonOf(key)) return absl::NotFoundError("of another driver");
  const absl::StatusOr<Ceilings> ceilings = CeilingsOfJson(json["ceilings"]);
  if (!ceilings.ok()) {
    return absl::DataLossError(absl::StrCat(path, ": is damaged: ", ceilings.status().message()));
  }
  return *ceilings;
}

absl::Status Write(const std::string& path, const CeilingsKey& key, const Ceilings& ceilings) {
  std::error_code error;
  const std::string directory = std::filesystem::path(path).parent_path().string();
  std::filesystem::create_directories(directory, error);
  if (error) return ErrnoStatus("cannot create it", directory, error.value());
  const std::string text = Json({{"key", JsonOf(key)}, {"ceilings", JsonOf(ceilings)}}).dump(2);
  return WriteFile(path, text);
}

}  // namespace

absl::StatusOr<CeilingsKey> CeilingsKeyOf(int ordinal) {
  cudaDeviceProp properties;
  absl::Status s = cuda_backend::ToStatus(cudaGetDeviceProperties(&properties, ordinal),
                                          "cudaGetDeviceProperties");
  if (!s.ok()) return s;
  const absl::StatusOr<cuda_backend::Versions> versions = cuda_backend::GetVersions();
  if (!versions.ok()) return versions.status();
  const std::string hex =
      absl::BytesToHexString(absl::string_view(properties.uuid.bytes, sizeof(properties.uuid)));
  CeilingsKey key;
  key.gpu = properties.name;
  key.uuid = absl::StrCat("GPU-", hex.substr(0, 8), "-", hex.substr(8, 4), "-", hex.substr(12, 4),
                          "-", hex.substr(16, 4), "-", hex.substr(20));
  key.driver = versions->driver.empty() ? versions->cuda_driver : versions->driver;
  key.cuda_runtime = versions->cuda_runtime;
  return key;
}

absl::StatusOr<KeptCeilings> KeepCeilings(const std::string& directory, const CeilingsKey& key,
                                          bool anew,
                                          absl::FunctionRef<absl::StatusOr<Ceilings>()> measure) {
  KeptCeilings kept;
  const std::string path =
      directory.empty() ? "" : absl::StrCat(directory, "/ceilings-", key.uuid, ".json");
  if (!path.empty() && !anew) {
    const absl::StatusOr<Ceilings> read = Read(path, key);
    if (read.ok()) {
      kept.ceilings = *read;
      return kept;
    }
    if (!absl::IsNotFound(read.status())) {
      kept.remark = absl::StrCat(read.status().message(), "; the ceilings were measured again");
    }
  }
  const absl::StatusOr<Ceilings> measured = measure();
  if (!measured.ok()) return measured.status();
  kept.ceilings = *measured;
  kept.measured = true;
  if (path.empty()) {
    kept.remark = "neither XDG_CACHE_HOME nor HOME is set: the ceilings are not kept";
  } else if (const absl::Status s = CeilingsOfJson(JsonOf(*measured)).status(); !s.ok()) {
    // Another program may have used the GPU meanwhile. Never write what Read() would reject.
    kept.remark =
        absl::StrCat("measured now: ", s.message(), "; the ceilings are for this run only");
  } else if (const absl::Status s = Write(path, key, *measured); !s.ok()) {
    kept.remark = absl::StrCat(s.message(), "; the ceilings are not kept");
  }
  return kept;
}

}  // namespace attnlab::profiling
