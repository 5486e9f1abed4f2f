#include "paged/replay/trace.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace attnlab::paged {
namespace {

constexpr absl::string_view kColumns[] = {"arrival", "context", "generated", "prefix",
                                          "prefix_tokens"};
constexpr size_t kRequired = 3;

std::string Quoted(absl::string_view value) {
  constexpr size_t kMost = 40;
  return absl::StrCat("\"", absl::CHexEscape(value.substr(0, kMost)),
                      value.size() > kMost ? "…" : "", "\"");
}

template <typename T>
absl::Status CheckRange(absl::string_view name, T value, T least, T most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": ", value, " is not in [", least, ", ", most, "]"));
}

// Takes records from the front of a CSV text.
class Records {
 public:
  explicit Records(absl::string_view text) : rest_(text) {
    absl::ConsumePrefix(&rest_, "\xEF\xBB\xBF");
  }

  // The next record that is neither blank nor a comment; no fields at the end of the text.
  absl::Status Next(std::vector<std::string>* fields) {
    const auto blank = [](const std::string& field) { return field.empty(); };
    do {
      fields->clear();
      if (rest_.empty()) return absl::OkStatus();
      line_ = next_line_;
      SkipBlanks();
      if (absl::StartsWith(rest_, "#")) {
        Take(std::min(rest_.find_first_of("\r\n"), rest_.size()));
        EndLine();
        continue;
      }
      do {
        if (absl::Status s = TakeField(fields); !s.ok()) return s;
      } while (absl::ConsumePrefix(&rest_, ","));
      EndLine();
    } while (std::all_of(fields->begin(), fields->end(), blank));
    return absl::OkStatus();
  }

  int64_t line() const { return line_; }  // where the record begins

 private:
  absl::string_view Take(size_t count) {
    const absl::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }

  void SkipBlanks() { Take(std::min(rest_.find_first_not_of(" \t"), rest_.size())); }

  void EndLine() {
    if (!absl::ConsumePrefix(&rest_, "\r\n") && !rest_.empty()) Take(1);
    ++next_line_;
  }

  absl::Status TakeField(std::vector<std::string>* fields) {
    SkipBlanks();
    std::string field;
    if (!absl::ConsumePrefix(&rest_, "\"")) {
      const size_t end = std::min(rest_.find_first_of(",\r\n"), rest_.size());
      field = std::string(absl::StripAsciiWhitespace(Take(end)));
    } else {
      const auto take_until_quote = [&] {
        const size_t end = rest_.find('"');
        if (end == absl::string_view::npos) return false;
        absl::StrAppend(&field, Take(end));
        Take(1);
        return true;
      };
      bool ends = take_until_quote();
      while (ends && absl::ConsumePrefix(&rest_, "\"")) {  // two of them stand for one
        field += '"';
        ends = take_until_quote();
      }
      if (!ends) return Error(*fields, "a quoted field has no end");
      next_line_ += std::count(field.begin(), field.end(), '\n');
      SkipBlanks();
      if (!rest_.empty() && rest_.find_first_of(",\r\n") != 0) {
        return Error(*fields, "expected a comma after the quoted field");
      }
    }
    fields->push_back(std::move(field));
    return absl::OkStatus();
  }

  absl::Status Error(const std::vector<std::string>& before, absl::string_view what) const {
    return absl::InvalidArgumentError(
        absl::StrCat("line ", line_, ", column ", before.size() + 1, ": ", what));
  }

  absl::string_view rest_;
  int64_t line_ = 0, next_line_ = 1;
};

absl::Status CheckHeader(const std::vector<std::string>& names, int64_t line) {
  const size_t count = std::size(kColumns);
  bool right = names.size() >= kRequired && names.size() <= count;
  for (size_t i = 0; right && i < names.size(); ++i) {
    right = absl::EqualsIgnoreCase(names[i], kColumns[i]);
  }
  if (right) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "line ", std::max<int64_t>(line, 1), ": the header is ", Quoted(absl::StrJoin(names, ",")),
      ", expected \"", absl::StrJoin(kColumns, ","), "\", of which the last two may be missing"));
}

// The fields of a row, as numbers.
class Row {
 public:
  Row(const std::vector<std::string>& fields, int64_t line) : fields_(fields), line_(line) {}

  bool Has(size_t column) const { return column < fields_.size() && !fields_[column].empty(); }
  const std::string& Text(size_t column) const { return fields_[column]; }

  absl::Status Integer(size_t column, int64_t least, int64_t most, int64_t* value) const {
    if (Has(column) && absl::SimpleAtoi(Text(column), value) && *value >= least && *value <= most) {
      return absl::OkStatus();
    }
    return Error(column, absl::StrCat("is not an integer in ", least, "..", most));
  }

  absl::Status Number(size_t column, double most, double* value) const {
    // Not a NaN either.
    if (Has(column) && absl::SimpleAtod(Text(column), value) && *value >= 0 && *value <= most) {
      return absl::OkStatus();
    }
    return Error(column, absl::StrCat("is not a number in 0..", most));
  }

  absl::Status Error(size_t column, absl::string_view limit) const {
    return absl::InvalidArgumentError(absl::StrCat("line ", line_, ", ", kColumns[column], ": ",
                                                   Has(column) ? Quoted(Text(column)) : "\"\"", " ",
                                                   limit));
  }

 private:
  const std::vector<std::string>& fields_;
  const int64_t line_;
};

// In [0, 1). The distributions of the standard library differ from one to another.
double Uniform(std::mt19937_64& random) { return static_cast<double>(random() >> 11) * 0x1p-53; }

int64_t Draw(std::mt19937_64& random, TraceOptions::Range range) {
  const auto count = static_cast<uint64_t>(range.most - range.least + 1);
  return range.least + static_cast<int64_t>(random() % count);
}

absl::Status Validate(const TraceOptions& o) {
  absl::Status s = CheckRange<int64_t>("requests", o.requests, 1, kMostRequests);
  if (s.ok()) s = CheckRange("rate", o.rate, 1e-3, 1e9);
  if (s.ok()) s = CheckRange<int64_t>("context", o.context.least, 1, kMostRequestTokens);
  if (s.ok()) s = CheckRange("context", o.context.most, o.context.least, kMostRequestTokens);
  if (s.ok()) s = CheckRange<int64_t>("generated", o.generated.least, 0, kMostRequestTokens);
  if (s.ok()) {
    s = CheckRange("generated", o.generated.most, o.generated.least, kMostRequestTokens);
  }
  if (s.ok()) {
    s = CheckRange<int64_t>("context and generated together", o.context.most + o.generated.most, 1,
                            kMostRequestTokens);
  }
  if (s.ok()) s = CheckRange<int64_t>("prefixes", o.prefixes, 0, kMostRequests);
  // A prefix is a part of the shortest context, too.
  if (s.ok()) s = CheckRange<int64_t>("prefix_tokens", o.prefix_tokens, 0, o.context.least);
  if (s.ok() && (o.prefixes == 0) != (o.prefix_tokens == 0)) {
    s = absl::InvalidArgumentError(absl::StrCat(
        "prefixes: ", o.prefixes, " and prefix_tokens: ", o.prefix_tokens, " go together"));
  }
  return s;
}

}  // namespace

absl::Status Validate(const Request& r) {
  absl::Status s = CheckRange<double>("arrival", r.arrival, 0, kLatestArrival);
  if (s.ok()) s = CheckRange<int64_t>("context", r.context, 1, kMostRequestTokens);
  if (s.ok()) s = CheckRange<int64_t>("generated", r.generated, 0, kMostRequestTokens - r.context);
  if (s.ok()) s = CheckRange<int64_t>("prefix", r.prefix, -1, kMostRequests - 1);
  if (s.ok()) {
    s = CheckRange<int64_t>("prefix_tokens", r.prefix_tokens, 0, r.prefix < 0 ? 0 : r.context);
  }
  return s;
}

void MakeTokens(const Request& request, int32_t number, int64_t count,
                std::vector<int32_t>* tokens) {
  tokens->assign(count, number);
  std::fill_n(tokens->begin(), std::min(count, request.prefix_tokens), -1 - request.prefix);
}

absl::StatusOr<std::vector<Request>> ParseTrace(absl::string_view csv) {
  Records records(csv);
  std::vector<std::string> fields;
  absl::Status s = records.Next(&fields);
  if (s.ok()) s = CheckHeader(fields, records.line());
  if (!s.ok()) return s;
  const size_t columns = fields.size();
  std::vector<Request> requests;
  absl::flat_hash_map<std::string, int32_t> prefixes;
  while ((s = records.Next(&fields)).ok() && !fields.empty()) {
    const Row row(fields, records.line());
    for (size_t i = columns; i < fields.size(); ++i) {
      if (!row.Has(i)) continue;  // a spreadsheet pads its rows
      return absl::InvalidArgumentError(absl::StrCat("line ", records.line(), ", column ", i + 1,
                                                     ": ", Quoted(fields[i]),
                                                     " is beyond the header's ", columns));
    }
    if (static_cast<int64_t>(requests.size()) == kMostRequests) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", records.line(), ": more than ", kMostRequests, " requests"));
    }
    Request r;
    s = row.Number(0, kLatestArrival, &r.arrival);
    if (s.ok()) s = row.Integer(1, 1, kMostRequestTokens, &r.context);
    if (s.ok()) s = row.Integer(2, 0, kMostRequestTokens - r.context, &r.generated);
    if (s.ok() && row.Has(3)) {
      r.prefix =
          prefixes.try_emplace(row.Text(3), static_cast<int32_t>(prefixes.size())).first->second;
      r.prefix_tokens = r.context;
    }
    if (s.ok() && row.Has(4)) {
      s = r.prefix < 0 ? row.Error(4, "has no prefix before it")
                       : row.Integer(4, 0, r.context, &r.prefix_tokens);
    }
    if (!s.ok()) return s;
    requests.push_back(r);
  }
  if (!s.ok()) return s;
  if (requests.empty()) return absl::InvalidArgumentError("there are no requests below the header");
  return requests;
}

absl::StatusOr<std::vector<Request>> GenerateTrace(const TraceOptions& options) {
  if (absl::Status s = Validate(options); !s.ok()) return s;
  std::mt19937_64 random(options.seed);
  std::vector<Request> requests(options.requests);
  double now = 0;
  for (Request& r : requests) {
    now += -std::log1p(-Uniform(random)) / options.rate;
    r.arrival = now;
    r.context = Draw(random, options.context);
    r.generated = Draw(random, options.generated);
    if (options.prefixes > 0) {
      r.prefix = static_cast<int32_t>(Draw(random, {0, options.prefixes - 1}));
      r.prefix_tokens = options.prefix_tokens;
    }
  }
  return requests;
}

}  // namespace attnlab::paged
