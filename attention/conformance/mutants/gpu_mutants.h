// GPU kernels that wait, allocate or use a stream wrongly on purpose, to show that the conformance
// suite rejects them. They copy Q to O and set LSE to a number, with copies of the CUDA runtime
// alone. That is enough for the checks of streams, graphs and allocations.
#ifndef ATTENTION_CONFORMANCE_MUTANTS_GPU_MUTANTS_H_
#define ATTENTION_CONFORMANCE_MUTANTS_GPU_MUTANTS_H_

#include <memory>
#include <string>
#include <vector>

#include "attention/core/kernel.h"

namespace attnlab::conformance {

struct GpuMutant {
  std::string name;
  std::unique_ptr<const Kernel> kernel;
  std::vector<std::string> checks;  // each of these must reject it
  std::string message;              // a part of what the first of them must say
};

std::unique_ptr<const Kernel> SoundGpuKernel();

std::vector<GpuMutant> GpuMutants();

}  // namespace attnlab::conformance

#endif  // ATTENTION_CONFORMANCE_MUTANTS_GPU_MUTANTS_H_
