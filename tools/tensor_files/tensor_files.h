// The tensors of an attention problem in .npy files.
//
//   layout        q                    k, v                   out (O)
//   bshd          [B, Sq, Hq, D]       [B, Skv, Hkv, D]       [B, Sq, Hq, Dv]
//   bhsd          [B, Hq, Sq, D]       [B, Hkv, Skv, D]       [B, Hq, Sq, Dv]
//   --qkv         [B, T, 3, H, D], one file                   [B, T, H, D]
//
// Inputs may lack the B axis: B is then 1, and O lacks it, too. With cu_seqlens, B must be 1 and S
// counts the tokens of all sequences. LSE is fp32 [B, Hq, Sq] in every layout. Rows that no
// sequence uses (padded, packed) are 0 in O and -inf in LSE.
#ifndef TOOLS_TENSOR_FILES_TENSOR_FILES_H_
#define TOOLS_TENSOR_FILES_TENSOR_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/core/device.h"
#include "attention/core/problem.h"
#include "attention/core/tensors.h"
#include "attention/cuda/memory.h"
#include "tools/tensor_files/npy.h"

namespace attnlab {

enum class FileLayout { kBshd, kBhsd };

// Parses "bshd" or "bhsd".
absl::StatusOr<FileLayout> ParseFileLayout(absl::string_view text);

// Paths, and what the files do not contain. Empty: not given.
struct TensorFiles {
  std::string q, k, v;  // these three, or
  std::string qkv;      // this
  FileLayout layout = FileLayout::kBshd;
  std::string q_len, kv_len;                // padded: int32 or int64 [B]
  std::string cu_seqlens_q, cu_seqlens_kv;  // packed: int32 or int64 [B + 1]
  std::string dtype;                        // dtype to compute in; empty: that of the files
  std::string mask, scale, softcap;         // as in the one-line form
};

// Inputs on a device.
struct LoadedTensors {
  AttentionProblem problem;
  AttentionTensors tensors;  // without o and lse
  bool has_batch_axis = true;

  std::vector<Buffer> buffers;  // memory of the views
};

// Reads the files into host memory and converts them to one dtype; fp64 becomes fp32.
// InvalidArgument names the file or the field, and what does not fit.
absl::StatusOr<LoadedTensors> LoadTensors(const TensorFiles& files);

// A copy on the device. For the CPU it copies nothing: the views share the memory of `loaded`.
absl::StatusOr<LoadedTensors> CopyTo(const LoadedTensors& loaded, Device device);

}  // namespace attnlab

#endif  // TOOLS_TENSOR_FILES_TENSOR_FILES_H_
