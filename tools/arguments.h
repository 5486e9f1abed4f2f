// The flags of one command: declared once, parsed, and printed as help.
//
// Abseil's flags are global to a program and keep the last of a repeated flag; subcommands need
// flags of their own, and several --problem at once. So a small parser of the same spelling:
//
//   std::vector<std::string> problems;
//   bool json = false;
//   ArgumentParser parser("attnlab bench", "Times kernels.");
//   parser.AddStrings("problem", "LINE", &problems, "Problem in the one-line form; repeatable.");
//   parser.AddBool("json", &json, "Print JSON.");
//   absl::Status s = parser.Parse({"--problem=hq=8,sq=512,d=64", "--json"});
//
// Values follow "=" or come as the next argument; a bool takes none, or =true and =false. In
// names "-" and "_" are the same. `--help` and `-h` end parsing and set help_wanted().
#ifndef TOOLS_ARGUMENTS_H_
#define TOOLS_ARGUMENTS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace attnlab {

class ArgumentParser {
 public:
  // `command` as it is typed; `summary` one or more lines.
  ArgumentParser(absl::string_view command, absl::string_view summary);

  // Begins a group of flags in the help.
  void AddGroup(absl::string_view title);

  // `value` keeps what it has where the flag is not given. Its lifetime covers Parse().
  // `placeholder` stands for the value in the help.
  void AddBool(absl::string_view name, bool* value, absl::string_view help);
  void AddString(absl::string_view name, absl::string_view placeholder, std::string* value,
                 absl::string_view help);
  void AddStrings(absl::string_view name, absl::string_view placeholder,
                  std::vector<std::string>* values, absl::string_view help);
  // An integer in low..high.
  void AddInteger(absl::string_view name, absl::string_view placeholder, int64_t* value,
                  int64_t low, int64_t high, absl::string_view help);
  // A finite number in low..high.
  void AddNumber(absl::string_view name, absl::string_view placeholder, double* value, double low,
                 double high, absl::string_view help);

  // Text behind the flags in the help: examples, exit codes.
  void AddSection(absl::string_view title, absl::string_view text);

  // InvalidArgument for an unknown flag (with the nearest known one), a missing or bad value, a
  // flag given twice that is not repeatable, or an argument that is no flag.
  absl::Status Parse(absl::Span<const std::string> arguments);

  bool help_wanted() const { return help_wanted_; }

  // Whether the flag was among the arguments.
  bool Given(absl::string_view name) const;

  std::string Help() const;

 private:
  struct Flag {
    std::string name, placeholder, help;
    std::function<absl::Status(absl::string_view)> set;
    bool repeatable = false;
    bool given = false;
    std::string group;  // title above this flag in the help
  };

  void Add(absl::string_view name, absl::string_view placeholder, absl::string_view help,
           bool repeatable, std::function<absl::Status(absl::string_view)> set);
  Flag* Find(absl::string_view name);
  absl::Status Unknown(absl::string_view name) const;

  std::string command_, summary_;
  std::vector<Flag> flags_;
  std::string next_group_;
  std::vector<std::pair<std::string, std::string>> sections_;
  bool help_wanted_ = false;
};

// The one of `names` that is spelled most like `word`, or "" when none comes near.
std::string Nearest(absl::string_view word, absl::Span<const std::string> names);

}  // namespace attnlab

#endif  // TOOLS_ARGUMENTS_H_
