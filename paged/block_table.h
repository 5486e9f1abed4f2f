// The block table of a PageManager, and the lengths of its sequences, on a device.
//
//   absl::StatusOr<BlockTable> table = BlockTable::Create(Device::Cuda(0), *cache);
//   s = table->Update(*cache, stream);           // once a step, after Append()
//   tensors.page_table = table->pages();
//   tensors.kv_len = table->lengths();
//
// A row is a sequence's SequenceId::row; rows without a sequence have length 0. So a problem with as
// many sequences as there are rows fits each step, and its launch can be captured in a graph.
#ifndef PAGED_BLOCK_TABLE_H_
#define PAGED_BLOCK_TABLE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/core/device.h"
#include "attention/core/tensor.h"
#include "attention/cuda/memory.h"
#include "paged/page_manager.h"

namespace attnlab::paged {

class BlockTable {
 public:
  // A table with a row per sequence and a column per page that a sequence may have.
  // ResourceExhausted without memory.
  static absl::StatusOr<BlockTable> Create(Device device, const PageManager& manager);

  // Brings table and lengths up to date with the manager. Only what changed is sent: on a GPU in the
  // arguments of kernels on the stream (cudaStream_t), without waiting and without allocating. One
  // table follows a manager: what it was given is not given again. No other thread may change the
  // manager meanwhile.
  absl::Status Update(PageManager& manager, void* stream = nullptr);

  PageTableView pages() const;
  LengthsView lengths() const;

 private:
  BlockTable() = default;
  absl::Status Send(void* stream);  // changes_

  Device device_;
  int64_t rows_ = 0, columns_ = 0;
  Buffer pages_, lengths_;
  std::vector<int32_t> sent_lengths_, new_lengths_;
  std::vector<TableChange> changes_;
};

}  // namespace attnlab::paged

#endif  // PAGED_BLOCK_TABLE_H_
