#include "tools/arguments.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace attnlab {
namespace {

absl::Status Bad(absl::string_view flag, absl::string_view value, absl::string_view limit) {
  return absl::InvalidArgumentError(absl::StrCat("--", flag, ": \"", value, "\" ", limit));
}

// Levenshtein's distance.
size_t Distance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replace, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

// Words in lines of at most `width`, each line behind `indent` blanks.
std::string Wrapped(absl::string_view text, size_t indent, size_t width) {
  std::string out, line;
  for (absl::string_view word : absl::StrSplit(text, ' ')) {
    if (!line.empty() && indent + line.size() + 1 + word.size() > width) {
      absl::StrAppend(&out, std::string(indent, ' '), line, "\n");
      line.clear();
    }
    absl::StrAppend(&line, line.empty() ? "" : " ", word);
  }
  return absl::StrCat(out, std::string(indent, ' '), line, "\n");
}

}  // namespace

std::string Nearest(absl::string_view word, absl::Span<const std::string> names) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& name : names) {
    const size_t distance = Distance(word, name);
    if (distance < best_distance && distance < name.size()) {
      best = name;
      best_distance = distance;
    }
  }
  return best;
}

ArgumentParser::ArgumentParser(absl::string_view command, absl::string_view summary)
    : command_(command), summary_(summary) {}

void ArgumentParser::AddGroup(absl::string_view title) { next_group_ = std::string(title); }

void ArgumentParser::Add(absl::string_view name, absl::string_view placeholder,
                         absl::string_view help, bool repeatable,
                         std::function<absl::Status(absl::string_view)> set) {
  Flag flag;
  flag.name = std::string(name);
  flag.placeholder = std::string(placeholder);
  flag.help = std::string(help);
  flag.set = std::move(set);
  flag.repeatable = repeatable;
  flag.group = std::exchange(next_group_, std::string());
  flags_.push_back(std::move(flag));
}

void ArgumentParser::AddBool(absl::string_view name, bool* value, absl::string_view help) {
  const std::string flag(name);
  Add(name, "", help, false, [flag, value](absl::string_view text) {
    if (text.empty() || text == "true") {
      *value = true;
    } else if (text == "false") {
      *value = false;
    } else {
      return Bad(flag, text, "is neither true nor false");
    }
    return absl::OkStatus();
  });
}

void ArgumentParser::AddString(absl::string_view name, absl::string_view placeholder,
                               std::string* value, absl::string_view help) {
  Add(name, placeholder, help, false, [value](absl::string_view text) {
    *value = std::string(text);
    return absl::OkStatus();
  });
}

void ArgumentParser::AddStrings(absl::string_view name, absl::string_view placeholder,
                                std::vector<std::string>* values, absl::string_view help) {
  Add(name, placeholder, help, true, [values](absl::string_view text) {
    values->emplace_back(text);
    return absl::OkStatus();
  });
}

void ArgumentParser::AddInteger(absl::string_view name, absl::string_view placeholder,
                                int64_t* value, int64_t low, int64_t high, absl::string_view help) {
  const std::string flag(name);
  Add(name, placeholder, help, false, [=](absl::string_view text) {
    int64_t parsed = 0;
    if (!absl::SimpleAtoi(text, &parsed) || parsed < low || parsed > high) {
      return Bad(flag, text, absl::StrCat("is not an integer in ", low, "..", high));
    }
    *value = parsed;
    return absl::OkStatus();
  });
}

void ArgumentParser::AddNumber(absl::string_view name, absl::string_view placeholder, double* value,
                               double low, double high, absl::string_view help) {
  const std::string flag(name);
  Add(name, placeholder, help, false, [=](absl::string_view text) {
    double parsed = 0;
    if (!absl::SimpleAtod(text, &parsed) || !(parsed >= low && parsed <= high)) {
      return Bad(flag, text, absl::StrCat("is not a number in ", low, "..", high));
    }
    *value = parsed;
    return absl::OkStatus();
  });
}

void ArgumentParser::AddSection(absl::string_view title, absl::string_view text) {
  sections_.emplace_back(title, text);
}

ArgumentParser::Flag* ArgumentParser::Find(absl::string_view name) {
  for (Flag& flag : flags_) {
    if (flag.name == name) return &flag;
  }
  return nullptr;
}

bool ArgumentParser::Given(absl::string_view name) const {
  return std::any_of(flags_.begin(), flags_.end(),
                     [&](const Flag& flag) { return flag.name == name && flag.given; });
}

absl::Status ArgumentParser::Unknown(absl::string_view name) const {
  std::vector<std::string> names;
  for (const Flag& flag : flags_) names.push_back(flag.name);
  const std::string nearest = Nearest(name, names);
  return absl::InvalidArgumentError(
      absl::StrCat("unknown flag --", name,
                   nearest.empty() ? "" : absl::StrCat("; did you mean --", nearest, "?")));
}

absl::Status ArgumentParser::Parse(absl::Span<const std::string> arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    absl::string_view argument = arguments[i];
    if (argument == "--help" || argument == "-h") {
      help_wanted_ = true;
      return absl::OkStatus();
    }
    if (!absl::StartsWith(argument, "--") || argument.size() == 2) {
      return absl::InvalidArgumentError(
          absl::StrCat("unexpected argument \"", argument, "\"; flags begin with --"));
    }
    argument.remove_prefix(2);
    const size_t equals = argument.find('=');
    const std::string name = absl::StrReplaceAll(argument.substr(0, equals), {{"-", "_"}});
    Flag* flag = Find(name);
    if (flag == nullptr) return Unknown(argument.substr(0, equals));
    if (flag->given && !flag->repeatable) {
      return absl::InvalidArgumentError(absl::StrCat("--", name, " is given twice"));
    }
    flag->given = true;
    absl::string_view value;
    const bool is_bool = flag->placeholder.empty();
    if (equals != absl::string_view::npos) {
      value = argument.substr(equals + 1);
      if (value.empty()) {
        return absl::InvalidArgumentError(absl::StrCat("--", name, ": the value is empty"));
      }
    } else if (!is_bool) {
      if (i + 1 == arguments.size() || absl::StartsWith(arguments[i + 1], "--")) {
        return absl::InvalidArgumentError(
            absl::StrCat("--", name, " needs a value: --", name, "=", flag->placeholder));
      }
      value = arguments[++i];
    }
    if (absl::Status s = flag->set(value); !s.ok()) return s;
  }
  return absl::OkStatus();
}

std::string ArgumentParser::Help() const {
  std::string help = absl::StrCat(summary_, "\n\nUsage: ", command_, " [flags]\n");
  for (const Flag& flag : flags_) {
    if (!flag.group.empty()) absl::StrAppend(&help, "\n", flag.group, ":\n");
    const std::string head = absl::StrCat(
        "  --", flag.name, flag.placeholder.empty() ? "" : absl::StrCat("=", flag.placeholder));
    constexpr size_t kColumn = 28, kWidth = 96;
    std::string text = Wrapped(flag.help, kColumn, kWidth);
    if (head.size() + 2 <= kColumn) {
      absl::StrAppend(&help, head, absl::string_view(text).substr(head.size()));
    } else {
      absl::StrAppend(&help, head, "\n", text);
    }
  }
  for (const auto& [title, text] : sections_) {
    absl::StrAppend(&help, "\n", title, ":\n");
    for (absl::string_view line : absl::StrSplit(absl::StripSuffix(text, "\n"), '\n')) {
      absl::StrAppend(&help, line.empty() ? "" : "  ", line, "\n");
    }
  }
  return help;
}

}  // namespace attnlab
