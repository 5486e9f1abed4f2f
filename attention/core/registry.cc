#include "attention/core/registry.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace attnlab {

Registry& Registry::Global() {
  static Registry* const kRegistry = new Registry;  // never destroyed: outlives static objects
  return *kRegistry;
}

absl::Status Registry::Register(std::unique_ptr<const Kernel> kernel) {
  const std::string name = kernel->traits().name;
  auto [it, inserted] = kernels_.try_emplace(name);
  if (inserted) {
    it->second.kernel = std::move(kernel);
    return absl::OkStatus();
  }
  it->second.repeated = true;
  return absl::AlreadyExistsError(absl::StrCat("kernel: two are named \"", name, "\""));
}

absl::StatusOr<const Kernel*> Registry::Find(absl::string_view name) const {
  const auto it = kernels_.find(std::string(name));
  if (it == kernels_.end()) {
    std::vector<std::string> names;
    for (const auto& [known, entry] : kernels_) names.push_back(known);
    return absl::NotFoundError(
        absl::StrCat("kernel: \"", name, "\" is not linked into this program; ",
                     names.empty() ? "it has none" : "it has " + absl::StrJoin(names, ", ")));
  }
  if (it->second.repeated) {
    return absl::FailedPreconditionError(
        absl::StrCat("kernel: two kernels of this program are named \"", name, "\""));
  }
  return it->second.kernel.get();
}

std::vector<const Kernel*> Registry::All() const {
  std::vector<const Kernel*> all;
  for (const auto& [name, entry] : kernels_) all.push_back(entry.kernel.get());
  return all;
}

absl::Status Registry::Check() const {
  for (const auto& [name, entry] : kernels_) {
    if (absl::Status s = Find(name).status(); !s.ok()) return s;
  }
  return absl::OkStatus();
}

}  // namespace attnlab
