#include "tools/command/presets.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tools/command/sweep.h"

namespace attnlab {
namespace {

constexpr Model kModels[] = {
    {"llama3-8b", 32, 8, 128, 0, "meta-llama/Meta-Llama-3-8B: 32 heads of 4096 / 32"},
    {"llama3-70b", 64, 8, 128, 0, "meta-llama/Meta-Llama-3-70B: 64 heads of 8192 / 64"},
    {"qwen3-8b", 32, 8, 128, 0, "Qwen/Qwen3-8B: head_dim 128, use_sliding_window false"},
    {"mixtral-8x7b", 32, 8, 128, 0,
     "mistralai/Mixtral-8x7B-v0.1: 32 heads of 4096 / 32, sliding_window null"},
};

using Keys = std::vector<std::pair<std::string, std::string>>;

absl::Status Unknown(absl::string_view preset, absl::string_view why) {
  const std::string models = absl::StrJoin(
      Models(), ", ", [](std::string* out, const Model& m) { absl::StrAppend(out, m.name); });
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", preset, "\" ", why, "; there are the presets gpt2 and MODEL-PHASE-LENGTH, with",
      " MODEL one of ", models, ", PHASE prefill or decode, LENGTH as in 512 or 4k"));
}

absl::StatusOr<Keys> KeysOf(absl::string_view preset) {
  if (preset == "gpt2") {
    return Keys{{"b", "8"},  {"hq", "12"},      {"sq", "1024"},
                {"d", "64"}, {"dtype", "fp32"}, {"mask", "causal"}};
  }
  for (const Model& model : Models()) {
    absl::string_view rest = preset;
    if (!absl::ConsumePrefix(&rest, absl::StrCat(model.name, "-"))) continue;
    const std::vector<absl::string_view> parts = absl::StrSplit(rest, absl::MaxSplits('-', 1));
    const bool decode = parts[0] == "decode";
    if (!decode && parts[0] != "prefill") return Unknown(preset, "has no such phase");
    if (parts.size() < 2) return Unknown(preset, "has no length");
    const absl::StatusOr<int64_t> length = ParseCount(parts[1]);
    if (!length.ok() || *length < 1) {
      return Unknown(preset, absl::StrCat("has the length \"", parts[1], "\""));
    }
    Keys keys = {{"b", "1"},
                 {"hq", absl::StrCat(model.query_heads)},
                 {"hkv", absl::StrCat(model.kv_heads)},
                 {"sq", decode ? "1" : absl::StrCat(*length)}};
    if (decode) keys.emplace_back("skv", absl::StrCat(*length));
    keys.emplace_back("d", absl::StrCat(model.head_dim));
    keys.emplace_back("dtype", "bf16");
    // The model's window includes the query's own position; window:LEFT:RIGHT does not.
    keys.emplace_back("mask", model.sliding_window == 0
                                  ? "causal"
                                  : absl::StrCat("window:", model.sliding_window - 1, ":0"));
    return keys;
  }
  return Unknown(preset, "is not known");
}

}  // namespace

absl::Span<const Model> Models() { return kModels; }

absl::StatusOr<std::string> PresetLine(absl::string_view preset) {
  const std::vector<absl::string_view> parts = absl::StrSplit(preset, absl::MaxSplits(',', 1));
  absl::StatusOr<Keys> keys = KeysOf(parts[0]);
  if (!keys.ok()) return keys.status();
  std::string line;
  const std::string changes = parts.size() > 1 ? std::string(parts[1]) : "";
  const std::vector<absl::string_view> items = absl::StrSplit(changes, ',');
  for (const auto& [key, value] : *keys) {
    bool changed = false;
    for (absl::string_view item : items) {
      changed = changed || absl::StartsWith(item, absl::StrCat(key, "="));
    }
    if (!changed) absl::StrAppend(&line, line.empty() ? "" : ",", key, "=", value);
  }
  if (parts.size() > 1) absl::StrAppend(&line, ",", changes);
  return line;
}

}  // namespace attnlab
