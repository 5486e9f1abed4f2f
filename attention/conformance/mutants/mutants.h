// Kernels that are wrong on purpose, to show that the conformance suite rejects them.
#ifndef ATTENTION_CONFORMANCE_MUTANTS_MUTANTS_H_
#define ATTENTION_CONFORMANCE_MUTANTS_MUTANTS_H_

#include <memory>
#include <string>
#include <vector>

#include "attention/core/kernel.h"

namespace attnlab::conformance {

struct Mutant {
  std::string name;
  std::unique_ptr<const Kernel> kernel;
  std::string check;    // the check that must reject it
  std::string message;  // a part of what it must say
};

// The correct kernel that the mutants are made from: tiles of 16 keys, online softmax, fp32.
std::unique_ptr<const Kernel> SoundKernel();

std::vector<Mutant> Mutants();

}  // namespace attnlab::conformance

#endif  // ATTENTION_CONFORMANCE_MUTANTS_MUTANTS_H_
