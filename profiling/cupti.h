// CUPTI, NVIDIA's profiling library, loaded on first use. Programs that can profile thus start on
// machines without it, and say what is missing when asked to profile.
//
//   absl::StatusOr<const Cupti*> cupti = LoadCupti();
//   if (!cupti.ok()) return cupti.status();
//   absl::Status s = (*cupti)->Check((*cupti)->cuptiGetVersion(&version), "cuptiGetVersion");
#ifndef PROFILING_CUPTI_H_
#define PROFILING_CUPTI_H_

#include <cuda.h>
#include <cupti_activity.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_range_profiler.h>
#include <cupti_result.h>
#include <cupti_target.h>
#include <cupti_version.h>

#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace attnlab::profiling {

// The functions that attnlab uses, by their CUPTI names.
#define ATTNLAB_CUPTI_FUNCTIONS(F)                \
  F(cuptiActivityDisable)                         \
  F(cuptiActivityEnable)                          \
  F(cuptiActivityFlushAll)                        \
  F(cuptiActivityGetNextRecord)                   \
  F(cuptiActivityGetNumDroppedRecords)            \
  F(cuptiActivityRegisterCallbacks)               \
  F(cuptiDeviceGetChipName)                       \
  F(cuptiGetErrorMessage)                         \
  F(cuptiGetResultString)                         \
  F(cuptiGetVersion)                              \
  F(cuptiProfilerDeviceSupported)                 \
  F(cuptiProfilerHostConfigAddMetrics)            \
  F(cuptiProfilerHostDeinitialize)                \
  F(cuptiProfilerHostEvaluateToGpuValues)         \
  F(cuptiProfilerHostGetBaseMetrics)              \
  F(cuptiProfilerHostGetConfigImage)              \
  F(cuptiProfilerHostGetConfigImageSize)          \
  F(cuptiProfilerHostGetMetricProperties)         \
  F(cuptiProfilerHostGetNumOfPasses)              \
  F(cuptiProfilerHostGetSubMetrics)               \
  F(cuptiProfilerHostGetSupportedChips)           \
  F(cuptiProfilerHostInitialize)                  \
  F(cuptiProfilerInitialize)                      \
  F(cuptiRangeProfilerCounterDataImageInitialize) \
  F(cuptiRangeProfilerDecodeData)                 \
  F(cuptiRangeProfilerDisable)                    \
  F(cuptiRangeProfilerEnable)                     \
  F(cuptiRangeProfilerGetCounterDataSize)         \
  F(cuptiRangeProfilerPopRange)                   \
  F(cuptiRangeProfilerPushRange)                  \
  F(cuptiRangeProfilerSetConfig)                  \
  F(cuptiRangeProfilerStart)                      \
  F(cuptiRangeProfilerStop)

struct Cupti {
#define ATTNLAB_CUPTI_MEMBER(name) decltype(&::name) name = nullptr;
  ATTNLAB_CUPTI_FUNCTIONS(ATTNLAB_CUPTI_MEMBER)
#undef ATTNLAB_CUPTI_MEMBER

  std::string path;  // of the loaded library

  // OK for CUPTI_SUCCESS. Otherwise "CALL: what CUPTI says", with what to do about it where that is
  // known. PermissionDenied where the driver keeps counters to administrators, Unavailable where
  // another profiler holds them, Unimplemented for what the GPU or driver cannot do,
  // ResourceExhausted for memory, else Internal.
  absl::Status Check(CUptiResult result, absl::string_view call) const;
};

// Loaded once, from the CuptiPlaces of the environment.
absl::StatusOr<const Cupti*> LoadCupti();

// Where to look for CUPTI, in this order. The first fields are environment variables, "" where not
// set.
struct CuptiPlaces {
  std::string attnlab_cupti;         // the library; if set, the only place
  std::string cuda_home, cuda_path;  // roots of toolkits
  // After those: the loader's own search (LD_LIBRARY_PATH, ld.so.conf), then this toolkit.
  std::string usual = "/usr/local/cuda";
  // The file name, in a toolkit and for the loader. It has the major version of CUDA, so the
  // library matches the headers.
  std::string name = absl::StrCat("libcupti.so.", CUDA_VERSION / 1000);
};

CuptiPlaces PlacesOfEnvironment();

// Loads the first CUPTI that can be used. libnvperf_host.so must lie beside it, or where the loader
// finds it. Otherwise Unavailable: which variables were set, what was tried, and why it failed. The
// library stays loaded, because CUPTI may have started work.
absl::StatusOr<Cupti> LoadCuptiFrom(const CuptiPlaces& places);

// A CUPTI parameter block: zeroed, with its size set.
template <typename T>
T CuptiParams(size_t size) {
  T params;
  std::memset(&params, 0, sizeof(params));
  params.structSize = size;
  return params;
}
#define ATTNLAB_CUPTI_PARAMS(type) ::attnlab::profiling::CuptiParams<type>(type##_STRUCT_SIZE)

}  // namespace attnlab::profiling

#endif  // PROFILING_CUPTI_H_
