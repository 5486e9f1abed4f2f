#include "tools/lib/arguments.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tools/lib/similar_names.h"

namespace attnlab {
namespace {

absl::Status Bad(absl::string_view flag, absl::string_view value, absl::string_view limit) {
  return absl::InvalidArgumentError(absl::StrCat("--", flag, ": \"", value, "\" ", limit));
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

ArgumentParser::ArgumentParser(absl::string_view command, absl::string_view summary)
    : command_(command), summary_(summary) {}

void ArgumentParser::AddGroup(absl::string_view title) { next_group_ = std::string(title); }

ArgumentParser::Flag& ArgumentParser::Add(absl::string_view name, absl::string_view placeholder,
                                          absl::string_view help,
                                          std::function<absl::Status(absl::string_view)> set) {
  Flag flag;
  flag.name = std::string(name);
  flag.placeholder = std::string(placeholder);
  flag.help = std::string(help);
  flag.set = std::move(set);
  flag.group = std::exchange(next_group_, std::string());
  flags_.push_back(std::move(flag));
  return flags_.back();
}

void ArgumentParser::AddBool(absl::string_view name, bool* value, absl::string_view help,
                             absl::string_view hint) {
  const std::string flag(name), end(hint);
  Add(name, "", help, [flag, end, value](absl::string_view text) {
    return absl::SimpleAtob(text, value)
               ? absl::OkStatus()
               : Bad(flag, text, absl::StrCat("is neither true nor false", end));
  }).alone = true;
}

void ArgumentParser::AddString(absl::string_view name, absl::string_view placeholder,
                               std::string* value, absl::string_view help) {
  Add(name, placeholder, help, [value](absl::string_view text) {
    *value = std::string(text);
    return absl::OkStatus();
  });
}

void ArgumentParser::AddOptional(absl::string_view name, absl::string_view placeholder,
                                 std::string* value, absl::string_view implied,
                                 absl::string_view help) {
  const std::string without(implied);
  Add(name, placeholder, help, [without, value](absl::string_view text) {
    *value = text == "true" ? without : text == "false" ? "" : std::string(text);
    return absl::OkStatus();
  }).alone = true;
}

void ArgumentParser::AddStrings(absl::string_view name, absl::string_view placeholder,
                                std::vector<std::string>* values, absl::string_view help) {
  Add(name, placeholder, help, [values](absl::string_view text) {
    values->emplace_back(text);
    return absl::OkStatus();
  }).repeatable = true;
}

void ArgumentParser::AddInteger(absl::string_view name, absl::string_view placeholder,
                                int64_t* value, int64_t low, int64_t high, absl::string_view help) {
  const std::string flag(name);
  Add(name, placeholder, help, [=](absl::string_view text) {
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
  Add(name, placeholder, help, [=](absl::string_view text) {
    double parsed = 0;
    const bool number = absl::SimpleAtod(text, &parsed);
    const size_t digit = text.find_first_of("123456789");
    if (number && parsed == 0 && digit < text.find_first_of("eE")) {
      return Bad(flag, text, "is too small: a double would be 0");
    }
    if (number && std::isinf(parsed) && digit != absl::string_view::npos) {
      return Bad(flag, text, "is too large: a double would be infinite");
    }
    if (!number || !(parsed >= low && parsed <= high)) {
      return Bad(flag, text, absl::StrCat("is not a number in ", low, "..", high));
    }
    *value = parsed;
    return absl::OkStatus();
  });
}

void ArgumentParser::AddSection(absl::string_view title, absl::string_view text) {
  sections_.emplace_back(title, text);
}

void ArgumentParser::AddPositional(absl::string_view usage, std::vector<std::string>* values) {
  positional_usage_ = absl::StrCat(" ", usage);
  positional_ = values;
}

bool ArgumentParser::Given(absl::string_view name) const {
  return std::any_of(flags_.begin(), flags_.end(),
                     [&](const Flag& flag) { return flag.name == name && flag.given; });
}

const ArgumentParser::Flag* ArgumentParser::Find(absl::string_view name) const {
  const std::string wanted = absl::StrReplaceAll(name, {{"-", "_"}});
  const auto found = std::find_if(flags_.begin(), flags_.end(),
                                  [&](const Flag& flag) { return flag.name == wanted; });
  return found == flags_.end() ? nullptr : &*found;
}

// The argument as CLI11 is to see it. Errors are those of values that are missing, where CLI11
// would take the next argument.
absl::Status ArgumentParser::Canonical(std::string* argument, const std::string* next) const {
  if (!absl::StartsWith(*argument, "--") || argument->size() == 2) return absl::OkStatus();
  const size_t equals = argument->find('=');
  const std::string name = argument->substr(2, equals - 2);
  const std::string value = equals == std::string::npos ? "" : argument->substr(equals);
  const Flag* flag = Find(name);
  if (value == "=")
    return absl::InvalidArgumentError(absl::StrCat("--", name, ": the value is empty"));
  const bool negated =
      flag == nullptr && (absl::StartsWith(name, "no-") || absl::StartsWith(name, "no_"));
  if (negated) flag = Find(absl::string_view(name).substr(3));
  if ((name == "help" || (negated && flag != nullptr && flag->alone)) && !value.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("--", name, " takes no value"));
  }
  if (flag == nullptr || (negated && !flag->alone)) return absl::OkStatus();
  *argument = absl::StrCat("--", flag->name, negated ? "=false" : value);
  if (flag->alone || !value.empty()) return absl::OkStatus();
  if (next != nullptr && !absl::StartsWith(*next, "--")) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag->name, " needs a value: --", flag->name, "=", flag->placeholder));
}

absl::Status ArgumentParser::Take(Flag* flag, const std::string& value) {
  if (value.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("--", flag->name, ": the value is empty"));
  }
  if (flag->given && !flag->repeatable) {
    return absl::InvalidArgumentError(absl::StrCat("--", flag->name, " is given twice"));
  }
  flag->given = true;
  return flag->set(value);
}

absl::Status ArgumentParser::TakeRest(const std::vector<std::string>& rest) {
  for (const std::string& argument : rest) {
    const bool is_flag = absl::StartsWith(argument, "-");
    if (!is_flag && positional_ != nullptr) {
      positional_->push_back(argument);
    } else if (!is_flag || argument.size() < 3 || argument[1] != '-') {
      return absl::InvalidArgumentError(
          absl::StrCat("unexpected argument \"", argument, "\"; flags begin with --"));
    } else {
      const std::string name = argument.substr(2, argument.find('=') - 2);
      std::vector<std::string> names;
      for (const Flag& flag : flags_) names.push_back(flag.name);
      std::vector<std::string> similar = SimilarNames(name, names, 1);
      for (std::string& flag : similar) flag.insert(0, "--");
      return absl::InvalidArgumentError(absl::StrCat("unknown flag --", name, DidYouMean(similar)));
    }
  }
  return absl::OkStatus();
}

absl::Status ArgumentParser::Parse(absl::Span<const std::string> arguments) {
  // As far as the first value that is missing.
  std::vector<std::string> words;
  absl::Status missing;
  for (size_t i = 0; i < arguments.size() && missing.ok(); ++i) {
    std::string word = arguments[i];
    missing = Canonical(&word, i + 1 < arguments.size() ? &arguments[i + 1] : nullptr);
    if (missing.ok()) words.push_back(std::move(word));
  }
  CLI::App app;
  app.allow_extras();
  app.set_help_flag();
  app.add_flag_callback("-h,--help", [this] { help_wanted_ = true; });
  for (Flag& flag : flags_) {
    const std::string name = absl::StrCat("--", flag.name);
    CLI::Option* const option = app.add_option(name, [this, &flag](const CLI::results_t& values) {
      for (const std::string& value : values) {
        const absl::Status s = Take(&flag, value);
        if (!s.ok()) throw CLI::ParseError(std::string(s.message()), CLI::ExitCodes::BaseClass);
      }
      return true;
    });
    option->trigger_on_parse()->type_name(flag.placeholder);
    if (flag.alone) option->expected(0);
  }
  absl::Status status;
  try {
    std::reverse(words.begin(), words.end());
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    status = absl::InvalidArgumentError(error.what());
  }
  // What CLI11 put aside by then came first.
  absl::Status s = TakeRest(app.remaining());
  s.Update(status);
  s.Update(missing);
  return s;
}

std::optional<int> ArgumentParser::ParseMain(int argc, char** argv) {
  const absl::Status s = Parse(std::vector<std::string>(argv + std::min(argc, 1), argv + argc));
  if (s.ok() && !help_wanted_) return std::nullopt;
  if (s.ok()) {
    std::cout << Help();
    return 0;
  }
  std::cerr << command_ << ": " << s.message() << "\n`" << command_ << " --help` lists the flags\n";
  return 2;
}

std::string ArgumentParser::Help() const {
  std::string help =
      absl::StrCat(summary_, "\n\nUsage: ", command_, " [flags]", positional_usage_, "\n");
  for (const Flag& flag : flags_) {
    if (!flag.group.empty()) absl::StrAppend(&help, "\n", flag.group, ":\n");
    const std::string head = absl::StrCat("  --", flag.name,
                                          flag.placeholder.empty() ? ""
                                          : flag.alone ? absl::StrCat("[=", flag.placeholder, "]")
                                                       : absl::StrCat("=", flag.placeholder));
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
