// The kernels that this program links, by name.
//
// A kernel's library registers it while the program starts, so a program has exactly the kernels
// that it depends on, and a target outside this tree adds its own in the same way:
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
  // The registry of the program. Filled before main(); safe to read from any thread after.
  static Registry& Global();

  // Adds a kernel. A second one of the same name is not added: AlreadyExists, and Find() of that
  // name fails from then on, since which one a program gets would depend on the order of linking.
  absl::Status Register(std::unique_ptr<const Kernel> kernel);

  // NotFound lists the names there are.
  absl::StatusOr<const Kernel*> Find(absl::string_view name) const;

  // In alphabetical order of their names.
  std::vector<const Kernel*> All() const;

  // OK, or which names were registered more than once.
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
  // A repeated name is remembered by the registry, which has no one to tell before main().
  Registry::Global().Register(std::make_unique<const KernelClass>()).IgnoreError();
  return true;
}
}  // namespace internal

}  // namespace attnlab

// At namespace scope in a .cc file, once a kernel class.
#define ATTNLAB_REGISTER_KERNEL(KernelClass)                    \
  [[maybe_unused]] static const bool kRegistered##KernelClass = \
      ::attnlab::internal::RegisterKernel<KernelClass>()

#endif  // ATTENTION_CORE_REGISTRY_H_
