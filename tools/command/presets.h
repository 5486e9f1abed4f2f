// Attention problems of known models, by name.
//
//   gpt2                      one training step of the smallest GPT-2: b=8 t=1024 c=768 nh=12
//   MODEL-PHASE-LENGTH        llama3-8b-prefill-4k, qwen3-8b-decode-128k, …
//
// MODEL is one of Models(). PHASE is prefill (LENGTH queries and keys, causal) or decode (one
// query, LENGTH keys in the cache). LENGTH counts tokens: 512, 4k, 128k, where k is 1024. The batch
// is 1 and the dtype bf16, as the models are published. Keys after the name change a preset:
// "llama3-8b-decode-4k,b=16,dtype=fp16".
#ifndef TOOLS_COMMAND_PRESETS_H_
#define TOOLS_COMMAND_PRESETS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace attnlab {

// The parameters of a model's attention, from its published config.json.
struct Model {
  absl::string_view name;
  int64_t query_heads;     // num_attention_heads
  int64_t kv_heads;        // num_key_value_heads
  int64_t head_dim;        // head_dim, or hidden_size / num_attention_heads
  int64_t sliding_window;  // sliding_window, 0 for none
  absl::string_view source;
};

absl::Span<const Model> Models();

// The one-line form of a preset and of the keys after it: "b=1,hq=32,hkv=8,sq=4k,d=128,…". The line
// may have ranges and lists, which ExpandSweep() expands. InvalidArgument says which part of the
// name is wrong, and lists the choices.
absl::StatusOr<std::string> PresetLine(absl::string_view preset);

}  // namespace attnlab

#endif  // TOOLS_COMMAND_PRESETS_H_
