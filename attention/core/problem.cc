#include "attention/core/problem.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace attnlab {
namespace {

absl::Status Invalid(absl::string_view field, absl::string_view value, absl::string_view limit) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", value, " ", limit));
}

absl::Status CheckRange(absl::string_view field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return Invalid(field, absl::StrCat(value), absl::StrCat("is not in ", low, "..", high));
}

absl::Status ParseInteger(absl::string_view key, absl::string_view text, int64_t* value) {
  // SimpleAtoi accepts surrounding blanks and a plus sign, which a canonical form should not have.
  const bool clean = text.find_first_not_of("-0123456789") == absl::string_view::npos;
  if (clean && absl::SimpleAtoi(text, value)) return absl::OkStatus();
  return Invalid(key, absl::StrCat("\"", text, "\""), "is not a 64-bit integer");
}

absl::Status ParseReal(absl::string_view key, absl::string_view text, float* value) {
  const bool clean = text.find_first_of(" \t\r\n\v\f") == absl::string_view::npos;
  const std::string quoted = absl::StrCat("\"", text, "\"");
  if (!clean || !absl::SimpleAtof(text, value)) return Invalid(key, quoted, "is not a number");
  const size_t digit = text.find_first_of("123456789");
  if (*value == 0 && digit < text.find_first_of("eE")) {
    return Invalid(key, quoted, "is too small: a float would be 0");
  }
  if (std::isinf(*value) && digit != absl::string_view::npos) {
    return Invalid(key, quoted, "is too large: a float would be infinite");
  }
  return absl::OkStatus();
}

absl::Status ParseElement(absl::string_view key, absl::string_view text, DType* dtype) {
  const absl::StatusOr<DType> parsed = ParseDType(text);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(key, absl::StripPrefix(parsed.status().message(), "dtype")));
  }
  *dtype = *parsed;
  return absl::OkStatus();
}

absl::Status ParseMask(absl::string_view text, Mask* mask) {
  if (text == "none") {
    *mask = Mask::None();
    return absl::OkStatus();
  }
  if (text == "causal") {
    *mask = Mask::Causal();
    return absl::OkStatus();
  }
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
  if (parts.size() == 3 && parts[0] == "window") {
    *mask = Mask::SlidingWindow(0, 0);
    absl::Status s = ParseInteger("mask", parts[1], &mask->left);
    if (s.ok()) s = ParseInteger("mask", parts[2], &mask->right);
    return s;
  }
  return Invalid("mask", absl::StrCat("\"", text, "\""),
                 "is not one of none, causal, window:LEFT:RIGHT");
}

std::string MaskLine(const Mask& mask) {
  switch (mask.kind) {
    case Mask::Kind::kNone:
      return "none";
    case Mask::Kind::kCausal:
      return "causal";
    case Mask::Kind::kSlidingWindow:
      return absl::StrCat("window:", mask.left, ":", mask.right);
  }
  return "unknown";
}

absl::string_view LengthsName(Lengths lens) {
  switch (lens) {
    case Lengths::kFixed:
      return "fixed";
    case Lengths::kPacked:
      return "packed";
    case Lengths::kPadded:
      return "padded";
  }
  return "unknown";
}

absl::Status ParseLengths(absl::string_view text, Lengths* lens) {
  for (Lengths candidate : {Lengths::kFixed, Lengths::kPacked, Lengths::kPadded}) {
    if (text == LengthsName(candidate)) {
      *lens = candidate;
      return absl::OkStatus();
    }
  }
  return Invalid("lens", absl::StrCat("\"", text, "\""), "is not one of fixed, packed, padded");
}

// The first of %.6g, %.7g, … that parses back to the same float; 9 digits always do.
std::string Shortest(float value) {
  for (int digits = 6; digits < 9; ++digits) {
    std::string text = absl::StrFormat("%.*g", digits, value);
    float back = 0;
    if (absl::SimpleAtof(text, &back) && back == value) return text;
  }
  return absl::StrFormat("%.9g", value);
}

// Rejects a tensor above 2^60 bytes, so that sums over the tensors of a problem fit in an int64.
absl::Status CheckBytes(absl::string_view tensor, std::initializer_list<int64_t> extents,
                        int64_t element) {
  int64_t bytes = element;
  for (int64_t extent : extents) {
    if (__builtin_mul_overflow(bytes, extent, &bytes) || bytes > int64_t{1} << 60) {
      return absl::OutOfRangeError(absl::StrCat(tensor, ": [", absl::StrJoin(extents, ", "),
                                                "] elements of ", element,
                                                " bytes exceed 2^60 bytes"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<AttentionProblem> AttentionProblem::Parse(absl::string_view line) {
  static constexpr absl::string_view kKeys[] = {
      "b",      "hq",     "hkv",  "sq",    "skv",     "d",    "dv",   "dtype",     "kvdtype",
      "vdtype", "odtype", "mask", "scale", "softcap", "lens", "page", "scaleblock"};
  AttentionProblem p;
  std::vector<absl::string_view> seen;
  const auto has = [&seen](absl::string_view key) {
    for (absl::string_view s : seen) {
      if (s == key) return true;
    }
    return false;
  };
  for (absl::string_view item : absl::StrSplit(line, ',')) {
    const size_t equals = item.find('=');
    const absl::string_view key = item.substr(0, equals);
    if (key.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("problem: empty key in \"", item, "\"; the form is key=value,key=value"));
    }
    if (equals == absl::string_view::npos || equals + 1 == item.size()) {
      return absl::InvalidArgumentError(absl::StrCat(key, ": has no value"));
    }
    if (has(key)) return absl::InvalidArgumentError(absl::StrCat(key, ": is given twice"));
    seen.push_back(key);
    const absl::string_view value = item.substr(equals + 1);
    absl::Status s;
    if (key == "b") {
      s = ParseInteger(key, value, &p.b);
    } else if (key == "hq") {
      s = ParseInteger(key, value, &p.hq);
    } else if (key == "hkv") {
      s = ParseInteger(key, value, &p.hkv);
    } else if (key == "sq") {
      s = ParseInteger(key, value, &p.sq);
    } else if (key == "skv") {
      s = ParseInteger(key, value, &p.skv);
    } else if (key == "d") {
      s = ParseInteger(key, value, &p.d);
    } else if (key == "dv") {
      s = ParseInteger(key, value, &p.dv);
    } else if (key == "dtype") {
      s = ParseElement(key, value, &p.dtype);
    } else if (key == "kvdtype") {
      s = ParseElement(key, value, &p.kv_dtype.emplace());
    } else if (key == "vdtype") {
      s = ParseElement(key, value, &p.v_dtype.emplace());
    } else if (key == "odtype") {
      s = ParseElement(key, value, &p.o_dtype.emplace());
    } else if (key == "mask") {
      s = ParseMask(value, &p.mask);
    } else if (key == "scale") {
      p.scale = 0.0f;
      s = ParseReal(key, value, &*p.scale);
    } else if (key == "softcap") {
      if (value != "none") s = ParseReal(key, value, &p.softcap);
    } else if (key == "lens") {
      s = ParseLengths(value, &p.lens);
    } else if (key == "page") {
      if (value != "none") s = ParseInteger(key, value, &p.page);
    } else if (key == "scaleblock") {
      if (value != "none") s = ParseInteger(key, value, &p.scale_block);
    } else {
      s = absl::InvalidArgumentError(absl::StrCat("problem: unknown key \"", key, "\"; known are ",
                                                  absl::StrJoin(kKeys, ", ")));
    }
    if (!s.ok()) return s;
  }
  for (absl::string_view required : {"hq", "sq", "d"}) {
    if (!has(required)) {
      return absl::InvalidArgumentError(absl::StrCat(required, ": is required and missing"));
    }
  }
  if (!has("hkv")) p.hkv = p.hq;
  if (!has("skv")) p.skv = p.sq;
  if (!has("dv")) p.dv = p.d;
  if (absl::Status s = p.Validate(); !s.ok()) return s;
  return p;
}

std::string AttentionProblem::ToString() const {
  std::string line =
      absl::StrCat("b=", b, ",hq=", hq, ",hkv=", hkv, ",sq=", sq, ",skv=", skv, ",d=", d);
  if (dv != d) absl::StrAppend(&line, ",dv=", dv);
  absl::StrAppend(&line, ",dtype=", Name(dtype));
  if (KvDType() != dtype) absl::StrAppend(&line, ",kvdtype=", Name(KvDType()));
  if (VDType() != KvDType()) absl::StrAppend(&line, ",vdtype=", Name(VDType()));
  AttentionProblem without_o_dtype;
  without_o_dtype.dtype = dtype;
  if (ODType() != without_o_dtype.ODType()) absl::StrAppend(&line, ",odtype=", Name(ODType()));
  absl::StrAppend(&line, ",mask=", MaskLine(mask));
  if (scale.has_value()) absl::StrAppend(&line, ",scale=", Shortest(*scale));
  if (softcap != 0) absl::StrAppend(&line, ",softcap=", Shortest(softcap));
  if (lens != Lengths::kFixed) absl::StrAppend(&line, ",lens=", LengthsName(lens));
  if (page != 0) absl::StrAppend(&line, ",page=", page);
  if (scale_block != 0) absl::StrAppend(&line, ",scaleblock=", scale_block);
  return line;
}

absl::Status AttentionProblem::Validate() const {
  const struct {
    absl::string_view name;
    int64_t value, low, high;
  } kRanges[] = {
      {"b", b, 1, kMaxExtent},    {"hq", hq, 1, kMaxExtent},   {"hkv", hkv, 1, kMaxExtent},
      {"sq", sq, 0, kMaxExtent},  {"skv", skv, 0, kMaxExtent}, {"d", d, 1, kMaxHeadDim},
      {"dv", dv, 1, kMaxHeadDim},
  };
  for (const auto& range : kRanges) {
    if (absl::Status s = CheckRange(range.name, range.value, range.low, range.high); !s.ok()) {
      return s;
    }
  }
  if (hq % hkv != 0)
    return Invalid("hkv", absl::StrCat(hkv), absl::StrCat("does not divide hq = ", hq));
  if (dtype == DType::kFloat8E5M2) {
    return Invalid("dtype", Name(dtype),
                   "is not one of fp32, fp16, bf16, fp8_e4m3; only V may have it, as vdtype");
  }
  const bool is_16_bits = dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  if (KvDType() != dtype && !(is_16_bits && KvDType() == DType::kFloat8E4M3)) {
    return Invalid("kvdtype", Name(KvDType()),
                   absl::StrCat("does not go with dtype=", Name(dtype),
                                "; must equal dtype, or be fp8_e4m3 if dtype is fp16 or bf16"));
  }
  if (VDType() != KvDType() && !(dtype == DType::kFloat8E4M3 && VDType() == DType::kFloat8E5M2)) {
    return Invalid("vdtype", Name(VDType()),
                   absl::StrCat("does not go with dtype=", Name(dtype),
                                "; must equal kvdtype, or be fp8_e5m2 if dtype is fp8_e4m3"));
  }
  if (dtype == DType::kFloat8E4M3 ? IsFp8(ODType()) : ODType() != dtype) {
    return Invalid(
        "odtype", Name(ODType()),
        absl::StrCat(
            "does not go with dtype=", Name(dtype),
            "; must be fp32, fp16 or bf16 if dtype is fp8_e4m3, and otherwise equal dtype"));
  }
  if (mask.kind == Mask::Kind::kSlidingWindow) {
    absl::Status s = CheckRange("mask: left", mask.left, 0, kMaxExtent);
    if (s.ok()) s = CheckRange("mask: right", mask.right, 0, kMaxExtent);
    if (!s.ok()) return s;
  } else if (mask.left != 0 || mask.right != 0) {
    return Invalid("mask", absl::StrCat("left ", mask.left, " and right ", mask.right),
                   absl::StrCat("are not 0, but the mask is ", MaskLine(mask),
                                "; only a sliding window has them"));
  }
  const auto in_range = [](float x) { return x >= kMinFactor && x <= kMaxFactor; };
  if (scale.has_value() && *scale != 0 && !in_range(*scale)) {
    return Invalid("scale", absl::StrCat(*scale), "is not 0 or in 1e-12..1e12");
  }
  if (softcap != 0 && !in_range(softcap)) {
    return Invalid("softcap", absl::StrCat(softcap), "is not in 1e-12..1e12, or 0 for no cap");
  }
  if (page < 0 || page > kMaxExtent || (page & (page - 1)) != 0) {
    return Invalid(
        "page", absl::StrCat(page),
        absl::StrCat("is not a power of two in 1..", kMaxExtent, ", or 0 for not paged"));
  }
  if (scale_block != 0 && scale_block != 64 && scale_block != 128) {
    return Invalid("scaleblock", absl::StrCat(scale_block),
                   "is not 64 or 128, or 0 for one scale for all rows of a head");
  }
  if (scale_block != 0 && dtype != DType::kFloat8E4M3) {
    return Invalid("scaleblock", absl::StrCat(scale_block),
                   absl::StrCat("does not go with dtype=", Name(dtype), ", only with fp8_e4m3"));
  }
  const struct {
    absl::string_view name;
    int64_t heads, length, dim, element;
  } kTensors[] = {{"q", hq, sq, d, SizeOf(dtype)},
                  {"k", hkv, skv, d, SizeOf(KvDType())},
                  {"v", hkv, skv, dv, SizeOf(VDType())},
                  {"o", hq, sq, dv, SizeOf(ODType())},
                  {"lse", hq, sq, 1, 4}};
  for (const auto& t : kTensors) {
    if (absl::Status s = CheckBytes(t.name, {b, t.length, t.heads, t.dim}, t.element); !s.ok()) {
      return s;
    }
  }
  return absl::OkStatus();
}

float AttentionProblem::Scale() const {
  return scale.has_value() ? *scale : static_cast<float>(1.0 / std::sqrt(static_cast<double>(d)));
}

int64_t WholeBytes(double bytes) { return static_cast<int64_t>(std::min(bytes, 0x1p61)); }

Traffic CompulsoryTraffic(const AttentionProblem& p, bool with_lse,
                          absl::Span<const int32_t> q_lens, absl::Span<const int32_t> kv_lens) {
  const int64_t q_row = p.hq * p.d * SizeOf(p.dtype);
  const int64_t kv_row = p.hkv * (p.d * SizeOf(p.KvDType()) + p.dv * SizeOf(p.VDType()));
  const int64_t o_row = p.hq * (p.dv * SizeOf(p.ODType()) + (with_lse ? int64_t{4} : int64_t{0}));
  const bool varies = !q_lens.empty() || !kv_lens.empty();
  Traffic total;
  // Without lengths, all sequences are alike: count one and multiply.
  const int64_t sequences = varies ? p.b : 1;
  const int64_t alike = varies ? 1 : p.b;
  for (int64_t i = 0; i < sequences; ++i) {
    const int64_t q_len = q_lens.empty() ? p.sq : q_lens[i];
    const int64_t kv_len = kv_lens.empty() ? p.skv : kv_lens[i];
    const KvRange seen = VisibleKvOfRows(p.mask, 0, q_len, q_len, kv_len);
    total.flops += 2.0 * static_cast<double>(alike * p.hq) * static_cast<double>(p.d + p.dv) *
                   static_cast<double>(VisiblePairs(p.mask, q_len, kv_len));
    total.bytes_read += alike * (q_row * q_len + kv_row * (seen.end - seen.begin));
    // Multiply by the length first: it may be 0 when the other product exceeds 2^63.
    total.bytes_written += alike * (o_row * q_len);
    if (p.page != 0 && seen.begin < seen.end) {
      total.bytes_read += alike * 4 * (p.Pages(seen.end) - seen.begin / p.page);
    }
  }
  return total;
}

}  // namespace attnlab
