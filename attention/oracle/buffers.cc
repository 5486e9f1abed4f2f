#include "attention/oracle/buffers.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "attention/oracle/bare_memory.h"

namespace attnlab::oracle {
namespace {

constexpr int64_t kWord = sizeof(uint16_t);

int64_t Rounded(int64_t bytes) { return (bytes + 255) / 256 * 256; }

size_t WordsOf(const Buffer& buffer) {
  return static_cast<size_t>((buffer.bytes() + kWord - 1) / kWord);
}

// Fills bytes [begin, end) with `word`, in blocks: a workspace on a GPU may be larger than the host's
// memory.
absl::Status Fill(Buffer& buffer, int64_t begin, int64_t end, uint16_t word) {
  constexpr int64_t kBlock = 8 << 20;  // bytes
  const std::vector<uint16_t> words(
      std::clamp<int64_t>((end - begin + 1) / kWord, 0, kBlock / kWord), word);
  for (; begin < end; begin += kBlock) {
    const absl::Status s = buffer.CopyFromHost(words.data(), std::min(kBlock, end - begin), begin);
    if (!s.ok()) return s;
  }
  return absl::OkStatus();
}

// `words`: 16-bit words per element, one or two.
bool IsPoison(const uint16_t* word, int64_t words) {
  return word[0] == kPoison && (words == 1 || word[1] == kPoison);
}

// The index of the element that lies `offset` elements after the first. In a gap between strides it
// is beyond the shape.
std::array<int64_t, 4> IndexOf(const TensorView& view, int64_t offset) {
  std::array<int, 4> axes = {0, 1, 2, 3};
  std::sort(axes.begin(), axes.end(),
            [&](int a, int b) { return view.strides[a] > view.strides[b]; });
  std::array<int64_t, 4> index = {0, 0, 0, 0};
  for (int axis : axes) {
    if (view.strides[axis] == 0 || (view.shape[axis] <= 1 && axis != 3)) continue;
    index[axis] = offset / view.strides[axis];
    offset %= view.strides[axis];
  }
  return index;
}

// The bytes of the buffer that a tensor's rows in use cover; the tensor begins at byte `begin`.
std::vector<ByteRange> RowsInUse(const AttentionProblem& p, const AttentionTensors& host_inputs,
                                 const TensorView& view, int64_t begin) {
  const int64_t element = SizeOf(view.dtype);
  std::vector<ByteRange> rows;
  for (int64_t i = 0; i < p.b; ++i) {
    const Sequence s = SequenceOf(p, host_inputs, i);
    for (int64_t row = 0; row < s.q_len; ++row) {
      for (int64_t head = 0; head < view.shape[2]; ++head) {
        const int64_t at = begin + element * view.Offset(s.q_batch, s.q_begin + row, head, 0);
        rows.push_back({at, at + element * view.shape[3]});
      }
    }
  }
  std::sort(rows.begin(), rows.end(),
            [](const ByteRange& a, const ByteRange& b) { return a.begin < b.begin; });
  return rows;
}

// Faults of one tensor. `storage` is a working copy: elements that may be written are poisoned
// again, so whatever is not poison at the end is a fault.
std::string TensorFaults(const char* name, const AttentionProblem& p,
                         const AttentionTensors& host_inputs, const TensorView& original,
                         const std::vector<uint16_t>& original_storage) {
  std::vector<uint16_t> storage = original_storage;
  const int64_t words = SizeOf(original.dtype) / kWord;
  const int64_t first = static_cast<const uint16_t*>(original.data) - original_storage.data();
  const int64_t heads = original.shape[2], dim = original.shape[3];
  std::string faults, where;
  int64_t unwritten = 0;
  for (int64_t i = 0; i < p.b; ++i) {
    const Sequence s = SequenceOf(p, host_inputs, i);
    for (int64_t row = 0; row < s.q_len; ++row) {
      for (int64_t head = 0; head < heads; ++head) {
        uint16_t* at =
            &storage[first + words * original.Offset(s.q_batch, s.q_begin + row, head, 0)];
        for (int64_t c = 0; c < dim; ++c, at += words) {
          if (IsPoison(at, words) && unwritten++ == 0) {
            where = absl::StrCat("sequence ", i, ", head ", head, ", row ", row, ", dim ", c);
          }
          std::fill(at, at + words, kPoison);
        }
      }
    }
  }
  if (unwritten > 0) {
    absl::StrAppend(&faults, name, ": ", unwritten,
                    unwritten == 1 ? " element is" : " elements are", " not written, the first at ",
                    where, "\n");
  }

  const auto wrong =
      std::find_if(storage.begin(), storage.end(), [](uint16_t word) { return word != kPoison; });
  if (wrong == storage.end()) return faults;
  const int64_t bytes = ((wrong - storage.begin()) - first) * kWord;
  if (bytes < 0) {
    absl::StrAppend(&faults, name, ": writes ", -bytes, " bytes before its first element\n");
  } else {
    absl::StrAppend(&faults, name, ": writes where it must not: ", bytes,
                    " bytes from its first element, which is index [",
                    absl::StrJoin(IndexOf(original, bytes / SizeOf(original.dtype)), ", "),
                    "] of shape [", absl::StrJoin(original.shape, ", "),
                    "] (batch, sequence, head, dim)\n");
  }
  return faults;
}

}  // namespace

absl::StatusOr<FencedBuffer> FencedBuffer::Make(Device device, int64_t bytes) {
  FencedBuffer fenced;
  fenced.fence_ = BareMemory() ? 0 : kFence;
  absl::StatusOr<Buffer> buffer =
      Buffer::Allocate(device, BareMemory() ? bytes : Rounded(bytes) + 2 * kFence);
  if (!buffer.ok()) return buffer.status();
  fenced.buffer_ = *std::move(buffer);
  fenced.bytes_ = bytes;
  return fenced;
}

void* FencedBuffer::data() { return static_cast<char*>(buffer_.data()) + fence_; }

absl::Status FencedBuffer::Poison(uint16_t content) {
  // If the size is odd, the last byte belongs to the fence.
  const int64_t end = fence_ + bytes_ / kWord * kWord;
  absl::Status s = Fill(buffer_, 0, fence_, kPoison);
  if (s.ok()) s = Fill(buffer_, fence_, end, content);
  if (s.ok()) s = Fill(buffer_, end, buffer_.bytes(), kPoison);
  return s;
}

absl::Status FencedBuffer::Renew(absl::Span<const ByteRange> unwritten) {
  // Allocates the new buffer before freeing the old one. The address changes, so a kernel that kept
  // the old one shows.
  absl::StatusOr<Buffer> buffer = Buffer::Allocate(buffer_.device(), buffer_.bytes());
  if (!buffer.ok()) return buffer.status();
  buffer_ = *std::move(buffer);
  int64_t at = 0;
  for (const ByteRange& range : unwritten) {
    if (absl::Status s = Fill(buffer_, at, fence_ + range.begin, kPoison); !s.ok()) return s;
    at = fence_ + range.end;
  }
  return Fill(buffer_, at, buffer_.bytes(), kPoison);
}

absl::StatusOr<std::vector<uint16_t>> FencedBuffer::ToHost() const {
  std::vector<uint16_t> words(WordsOf(buffer_));
  if (absl::Status s = buffer_.CopyToHost(words.data(), buffer_.bytes()); !s.ok()) return s;
  return words;
}

absl::StatusOr<std::string> FencedBuffer::FenceFault(const std::string& name) const {
  if (fence_ == 0) return std::string();
  std::vector<uint16_t> fence(kFence / kWord);
  if (absl::Status s = buffer_.CopyToHost(fence.data(), kFence); !s.ok()) return s;
  for (int64_t i = kFence / kWord - 1; i >= 0; --i) {
    if (fence[i] != kPoison) {
      return absl::StrCat(name, ": writes ", kFence - i * kWord, " bytes before its beginning\n");
    }
  }
  // Starts at the first whole word beyond the end.
  const int64_t begin = kFence + (bytes_ + kWord - 1) / kWord * kWord;
  fence.resize((buffer_.bytes() - begin) / kWord);
  const int64_t size = static_cast<int64_t>(fence.size()) * kWord;
  if (absl::Status s = buffer_.CopyToHost(fence.data(), size, begin); !s.ok()) return s;
  for (size_t i = 0; i < fence.size(); ++i) {
    if (fence[i] != kPoison) {
      return absl::StrCat(name, ": writes ",
                          static_cast<int64_t>(i) * kWord + begin - kFence - bytes_,
                          " bytes beyond its end of ", bytes_, "\n");
    }
  }
  return std::string();
}

absl::StatusOr<Outputs> Outputs::Make(const AttentionProblem& p, const AttentionTensors& inputs,
                                      Layout layout, bool with_lse) {
  const std::array<int64_t, 4>& shape = inputs.q.shape;
  const auto make = [&](DType dtype, Layout place_as, int64_t dim, FencedBuffer& buffer,
                        TensorView& view) -> absl::Status {
    const Placement place = Place(place_as, dtype, shape[0], shape[1], shape[2], dim);
    const int64_t elements = BareMemory() ? ElementsToLast(place) : place.elements;
    absl::StatusOr<FencedBuffer> fenced =
        FencedBuffer::Make(inputs.q.device, elements * SizeOf(dtype));
    if (!fenced.ok()) return fenced.status();
    buffer = *std::move(fenced);
    view = {static_cast<char*>(buffer.data()) + place.begin * SizeOf(dtype), dtype, inputs.q.device,
            place.shape, place.strides};
    return absl::OkStatus();
  };
  Outputs outputs;
  if (absl::Status s = make(p.ODType(), layout, p.dv, outputs.o_, outputs.o_view_); !s.ok())
    return s;
  if (!with_lse) return outputs;
  // LSE is usually [batch][head][sequence], whatever the order of the other tensors.
  const bool gaps = layout == Layout::kStrided || layout == Layout::kOdd;
  absl::Status s =
      make(DType::kFloat32, gaps ? layout : Layout::kBhsd, 1, outputs.lse_, outputs.lse_view_);
  if (!s.ok()) return s;
  return outputs;
}

AttentionTensors Outputs::Attach(AttentionTensors inputs) {
  inputs.o = o_view_;
  inputs.lse = lse_view_;
  return inputs;
}

absl::Status Outputs::Prepare(const AttentionProblem& p, const AttentionTensors& host_inputs) {
  const auto prepare = [&](FencedBuffer& buffer, TensorView& view) -> absl::Status {
    if (view.data == nullptr) return absl::OkStatus();
    if (!BareMemory()) return buffer.Poison();
    const int64_t begin = static_cast<char*>(view.data) - static_cast<char*>(buffer.data());
    absl::Status s = buffer.Renew(RowsInUse(p, host_inputs, view, begin));
    view.data = static_cast<char*>(buffer.data()) + begin;
    return s;
  };
  if (absl::Status s = prepare(o_, o_view_); !s.ok()) return s;
  return prepare(lse_, lse_view_);
}

absl::StatusOr<HostOutputs> Outputs::ToHost() const {
  HostOutputs host;
  const auto copy = [](const FencedBuffer& buffer, const TensorView& view,
                       std::vector<uint16_t>& storage, TensorView& host_view) -> absl::Status {
    absl::StatusOr<std::vector<uint16_t>> words = buffer.ToHost();
    if (!words.ok()) return words.status();
    storage = *std::move(words);
    const char* const begin = static_cast<const char*>(const_cast<FencedBuffer&>(buffer).data());
    host_view = view;
    host_view.device = Device::Cpu();
    host_view.data = reinterpret_cast<char*>(storage.data()) + buffer.fence() +
                     (static_cast<const char*>(view.data) - begin);
    return absl::OkStatus();
  };
  if (absl::Status s = copy(o_, o_view_, host.o_storage, host.o); !s.ok()) return s;
  if (lse_view_.data == nullptr) return host;
  if (absl::Status s = copy(lse_, lse_view_, host.lse_storage, host.lse); !s.ok()) return s;
  return host;
}

std::string WriteFaults(const AttentionProblem& p, const AttentionTensors& host_inputs,
                        const HostOutputs& outputs) {
  std::string faults = TensorFaults("o", p, host_inputs, outputs.o, outputs.o_storage);
  if (outputs.lse.data != nullptr) {
    faults += TensorFaults("lse", p, host_inputs, outputs.lse, outputs.lse_storage);
  }
  return faults;
}

Result ValuesOf(const AttentionProblem& p, const AttentionTensors& host_inputs,
                const HostOutputs& outputs, absl::Span<const Row> rows) {
  Result values;
  values.dv = p.dv;
  values.o.reserve(rows.size() * p.dv);
  for (const Row& row : rows) {
    const Sequence s = SequenceOf(p, host_inputs, row.sequence);
    const int64_t at = outputs.o.Offset(s.q_batch, s.q_begin + row.row, row.head, 0);
    for (int64_t c = 0; c < p.dv; ++c) {
      values.o.push_back(LoadElement(outputs.o.data, p.ODType(), at + c));
    }
    if (outputs.lse.data == nullptr) continue;
    values.lse.push_back(
        LoadElement(outputs.lse.data, DType::kFloat32,
                    outputs.lse.Offset(s.q_batch, s.q_begin + row.row, row.head, 0)));
  }
  return values;
}

std::string BitDifference(const AttentionProblem& p, const AttentionTensors& host_inputs,
                          const HostOutputs& a, const HostOutputs& b, absl::Span<const Row> rows) {
  const struct {
    const char* name;
    const TensorView &a, &b;
  } kTensors[] = {{"o", a.o, b.o}, {"lse", a.lse, b.lse}};
  for (const auto& t : kTensors) {
    if (t.a.data == nullptr || t.b.data == nullptr) continue;
    const int64_t element = SizeOf(t.a.dtype), dim = t.a.shape[3];
    for (const Row& row : rows) {
      const Sequence s = SequenceOf(p, host_inputs, row.sequence);
      const int64_t at_a = t.a.Offset(s.q_batch, s.q_begin + row.row, row.head, 0);
      const int64_t at_b = t.b.Offset(s.q_batch, s.q_begin + row.row, row.head, 0);
      const char* const row_a = static_cast<const char*>(t.a.data) + at_a * element;
      const char* const row_b = static_cast<const char*>(t.b.data) + at_b * element;
      if (std::memcmp(row_a, row_b, dim * element) == 0) continue;
      int64_t c = 0;
      while (std::memcmp(row_a + c * element, row_b + c * element, element) == 0) ++c;
      return absl::StrCat(t.name, ": bits differ at sequence ", row.sequence, ", head ", row.head,
                          ", row ", row.row, ", dim ", c, ": ",
                          LoadElement(t.a.data, t.a.dtype, at_a + c), " and ",
                          LoadElement(t.b.data, t.b.dtype, at_b + c), "\n");
    }
  }
  return "";
}

}  // namespace attnlab::oracle
