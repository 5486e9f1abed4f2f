// Fuzzes the .npy reader: any bytes give an array or an error. An array that is written again reads
// back unchanged.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tools/tensor_files/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<attnlab::NpyArray> array = attnlab::ParseNpy("fuzz.npy", bytes);
  if (!array.ok()) {
    if (array.status().message().substr(0, 10) != "fuzz.npy: ") abort();
    return 0;
  }
  const attnlab::NpyHeader& header = array->header;
  if (header.data_offset + header.NumBytes() != static_cast<int64_t>(size)) abort();
  std::string again = attnlab::NpyPreamble(header.type, header.shape);
  again.append(static_cast<const char*>(array->data.data()), header.NumBytes());
  const absl::StatusOr<attnlab::NpyArray> second = attnlab::ParseNpy("again.npy", again);
  if (!second.ok() || second->header.shape != header.shape || second->header.type != header.type ||
      std::memcmp(second->data.data(), array->data.data(), header.NumBytes()) != 0) {
    abort();
  }
  return 0;
}
