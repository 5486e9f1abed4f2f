#include "attention/tune/build_id.h"

#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"

namespace attnlab::tune {
namespace {

struct Search {
  uintptr_t inside = 0;  // an address of the module that is searched for
  std::string id;
};

// The build id among the notes [at, end).
std::string IdOfNotes(const char* at, const char* end) {
  while (end - at > static_cast<ptrdiff_t>(sizeof(ElfW(Nhdr)))) {
    ElfW(Nhdr) note;
    std::memcpy(&note, at, sizeof(note));
    const auto padded = [](uint32_t bytes) { return (bytes + 3) / 4 * 4; };
    const char* const name = at + sizeof(note);
    const char* const data = name + padded(note.n_namesz);
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
      return std::string(data, note.n_descsz);
    }
    at = data + padded(note.n_descsz);
  }
  return "";
}

int Visit(dl_phdr_info* module, size_t, void* data) {
  Search& search = *static_cast<Search*>(data);
  bool is_it = false;
  for (int i = 0; i < module->dlpi_phnum; ++i) {
    const auto& part = module->dlpi_phdr[i];
    const uintptr_t begin = module->dlpi_addr + part.p_vaddr;
    is_it |=
        part.p_type == PT_LOAD && search.inside >= begin && search.inside - begin < part.p_memsz;
  }
  if (!is_it) return 0;
  for (int i = 0; i < module->dlpi_phnum && search.id.empty(); ++i) {
    const auto& part = module->dlpi_phdr[i];
    if (part.p_type != PT_NOTE) continue;
    const char* const notes = reinterpret_cast<const char*>(module->dlpi_addr + part.p_vaddr);
    search.id = IdOfNotes(notes, notes + part.p_memsz);
  }
  return 1;
}

}  // namespace

absl::StatusOr<std::string> BuildId() {
  static const char kHere = 0;
  Search search;
  search.inside = reinterpret_cast<uintptr_t>(&kHere);
  dl_iterate_phdr(Visit, &search);
  if (search.id.empty()) {
    return absl::UnimplementedError("the program has no build id; link it with -Wl,--build-id");
  }
  return absl::BytesToHexString(search.id);
}

}  // namespace attnlab::tune
