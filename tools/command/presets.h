// Attention problems of known models, by name.
//
//   gpt2                      one training step of the smallest GPT-2: b=8 t=1024 c=768 nh=12
//   MODEL-PHASE-LENGTH        llama3-8b-prefill-4k, qwen3-8b-decode-128k, …
//
// MODEL is one of Models(). PHASE is prefill (LENGTH queries and keys, causal) or decode (one
// query, LENGTH keys in the cache). LENGTH counts tokens; k is 1024: 512, 4k, 128k. Batch 1,
// bf16, as the models are published; keys behind the name change that, by the rules of sweep.h:
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

// What attention needs of a model, from the config.json that its makers publish with it.
struct Model {
  absl::string_view name;
  int64_t query_heads;     // num_attention_heads
  int64_t kv_heads;        // num_key_value_heads
  int64_t head_dim;        // head_dim, or hidden_size / num_attention_heads
  int64_t sliding_window;  // sliding_window, 0 for none
  absl::string_view source;
};

absl::Span<const Model> Models();

// One-line form of the preset and the keys behind it: "b=1,hq=32,hkv=8,sq=4k,d=128,…". The line
// can hold ranges and lists, and ExpandSweep() makes problems of it. InvalidArgument names the
// part of the name that is wrong, and what there is.
absl::StatusOr<std::string> PresetLine(absl::string_view preset);

}  // namespace attnlab

#endif  // TOOLS_COMMAND_PRESETS_H_
