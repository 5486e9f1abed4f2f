#include "paged/block_table.h"

#include <algorithm>
#include <utility>

#include "paged/block_table_patch.h"
#include "paged/gpu.h"

namespace attnlab::paged {
namespace {

// Lengths go the way of the table's entries, as column -1.
constexpr int32_t kLength = -1;

}  // namespace

absl::StatusOr<BlockTable> BlockTable::Create(Device device, const PageManager& manager) {
  BlockTable table;
  table.device_ = device;
  table.rows_ = manager.options().sequences;
  table.columns_ = manager.columns();
  absl::StatusOr<Buffer> pages =
      Buffer::Allocate(device, table.rows_ * table.columns_ * int64_t{sizeof(PageId)});
  if (!pages.ok()) return pages.status();
  absl::StatusOr<Buffer> lengths = Buffer::Allocate(device, table.rows_ * int64_t{sizeof(int32_t)});
  if (!lengths.ok()) return lengths.status();
  table.pages_ = *std::move(pages);
  table.lengths_ = *std::move(lengths);
  // Entries that no sequence has had are page 0, so that none is out of range.
  absl::Status s = table.pages_.Fill(0);
  if (s.ok()) s = table.lengths_.Fill(0);
  if (!s.ok()) return s;
  table.sent_lengths_.assign(table.rows_, 0);
  return table;
}

absl::Status BlockTable::Update(PageManager& manager, void* stream) {
  // What an earlier call could not send goes first, in launches of its own: entries may have changed since.
  if (absl::Status s = Send(stream); !s.ok()) return s;
  manager.TakeTableChanges(&changes_);
  manager.GetLengths(&new_lengths_);
  for (int64_t row = 0; row < rows_; ++row) {
    if (new_lengths_[row] == sent_lengths_[row]) continue;
    changes_.push_back({static_cast<int32_t>(row), kLength, new_lengths_[row]});
  }
  if (absl::Status s = Send(stream); !s.ok()) return s;
  sent_lengths_ = new_lengths_;
  return absl::OkStatus();
}

absl::Status BlockTable::Send(void* stream) {
  for (size_t begin = 0; begin < changes_.size(); begin += TablePatch::kMost) {
    TablePatch patch;
    patch.pages = static_cast<int32_t*>(pages_.data());
    patch.lengths = static_cast<int32_t*>(lengths_.data());
    patch.columns = columns_;
    patch.count =
        static_cast<int32_t>(std::min<size_t>(TablePatch::kMost, changes_.size() - begin));
    for (int32_t i = 0; i < patch.count; ++i) {
      const TableChange& change = changes_[begin + i];
      patch.entries[i] = {change.row, change.column, change.page};
    }
    if (device_.kind == DeviceKind::kCpu) {
      for (int32_t i = 0; i < patch.count; ++i) patch.Apply(i);
    } else if (absl::Status s = PatchOnGpu(device_.ordinal, patch, stream); !s.ok()) {
      // What is left is sent next time.
      changes_.erase(changes_.begin(), changes_.begin() + static_cast<int64_t>(begin));
      return s;
    }
  }
  changes_.clear();
  return absl::OkStatus();
}

PageTableView BlockTable::pages() const {
  return {static_cast<const int32_t*>(pages_.data()), rows_, columns_, columns_};
}

LengthsView BlockTable::lengths() const {
  return {static_cast<const int32_t*>(lengths_.data()), rows_};
}

}  // namespace attnlab::paged
