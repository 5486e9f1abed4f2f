// The kernels that this program links, by name.
//
// A kernel's library registers it while the program starts, so a program has exactly the kernels
// that it depends on. A target outside this tree adds its own in the same way:
//
//   // my_kernel.cc, in a cc_library with alwayslink = True
//   class MyKernel : public attnlab::Kernel { … };
//   ATTNLAB_REGISTER_KERNEL(MyKernel);
#ifndef ATTENTION_CORE_REGISTRY_H_
#define ATTENTION_CORE_REGISTRY_H_

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "attention/core/kernel.h"

namespace attnlab {

class Registry {
 public:
  // The program's registry. It is filled before main(); then any thread may read it.
  static Registry& Global();

  // Adds a kernel. AlreadyExists if its name is taken: the kernel is not added, and Find() of that
  // name fails from then on, because link order would decide which one a program gets.
  absl::Status Register(std::unique_ptr<const Kernel> kernel);

  // NotFound lists the registered names. FailedPrecondition if the name was registered twice.
  absl::StatusOr<const Kernel*> Find(absl::string_view name) const;

  // Sorted by name.
  std::vector<const Kernel*> All() const;

  // OK, or an error with a name that was registered more than once.
  absl::Status Check() const;

 private:
  struct Entry {
    std::unique_ptr<const Kernel> kernel;
    bool repeated = false;
  };
  std::map<std::string, Entry> kernels_;
};

namespace internal {
template <typename KernelClass>
bool RegisterKernel() {
  // The registry remembers a repeated name, because before main() nobody can handle the error.
  Registry::Global().Register(std::make_unique<const KernelClass>()).IgnoreError();
  return true;
}
}  // namespace internal

}  // namespace attnlab

// Use at namespace scope in a .cc file, once per kernel class.
#define ATTNLAB_REGISTER_KERNEL(KernelClass)                    \
  [[maybe_unused]] static const bool kRegistered##KernelClass = \
      ::attnlab::internal::RegisterKernel<KernelClass>()

#endif  // ATTENTION_CORE_REGISTRY_H_
