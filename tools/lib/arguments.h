// The flags of a program or a subcommand: declared once, parsed, and printed as help.
//
//   std::vector<std::string> problems;
//   bool json = false;
//   ArgumentParser parser("attnlab bench", "Times kernels.");
//   parser.AddStrings("problem", "LINE", &problems, "Problem in the one-line form; repeatable.");
//   parser.AddBool("json", &json, "Print JSON.");
//   absl::Status s = parser.Parse({"--problem=hq=8,sq=512,d=64", "--json"});
//
// CLI11 does the parsing; its header is heavy, and its exceptions stop here. Values follow "=" or
// come as the next argument; a bool takes none, or =true and =false, and --no-NAME is
// --NAME=false. In names "-" and "_" are the same. `--help` and `-h` set help_wanted() if all other
// arguments are right: an error wins, wherever it stands. Of several errors the first is reported.
#ifndef TOOLS_LIB_ARGUMENTS_H_
#define TOOLS_LIB_ARGUMENTS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
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
  // `hint` ends the error for a value that is neither true nor false.
  void AddBool(absl::string_view name, bool* value, absl::string_view help,
               absl::string_view hint = "");
  void AddString(absl::string_view name, absl::string_view placeholder, std::string* value,
                 absl::string_view help);
  // --NAME or --NAME=VALUE, never --NAME VALUE. Without a value, and with =true, it is `implied`;
  // with =false it is empty.
  void AddOptional(absl::string_view name, absl::string_view placeholder, std::string* value,
                   absl::string_view implied, absl::string_view help);
  void AddStrings(absl::string_view name, absl::string_view placeholder,
                  std::vector<std::string>* values, absl::string_view help);
  // An integer in low..high.
  void AddInteger(absl::string_view name, absl::string_view placeholder, int64_t* value,
                  int64_t low, int64_t high, absl::string_view help);
  // A finite number in low..high.
  void AddNumber(absl::string_view name, absl::string_view placeholder, double* value, double low,
                 double high, absl::string_view help);

  // Takes arguments that are no flags; without this they are errors. `usage` as in "[PROBLEM ...]".
  void AddPositional(absl::string_view usage, std::vector<std::string>* values);

  // Text behind the flags in the help: examples, exit codes.
  void AddSection(absl::string_view title, absl::string_view text);

  // InvalidArgument for an unknown flag (with the nearest known one), a missing or bad value, a
  // flag given twice that is not repeatable, or an argument that is no flag where none is taken.
  absl::Status Parse(absl::Span<const std::string> arguments);

  // For main(): parses, and returns the exit code where the program ends here: 0 when help was
  // asked for and is printed, 2 with a message for bad arguments.
  std::optional<int> ParseMain(int argc, char** argv);

  bool help_wanted() const { return help_wanted_; }

  // Whether the flag was among the arguments.
  bool Given(absl::string_view name) const;

  std::string Help() const;

 private:
  struct Flag {
    std::string name, placeholder, help;
    std::function<absl::Status(absl::string_view)> set;
    bool repeatable = false;
    bool alone = false;  // may come without a value
    bool given = false;
    std::string group;  // title above this flag in the help
  };

  Flag& Add(absl::string_view name, absl::string_view placeholder, absl::string_view help,
            std::function<absl::Status(absl::string_view)> set);
  const Flag* Find(absl::string_view name) const;
  absl::Status Canonical(std::string* argument, const std::string* next) const;
  absl::Status Take(Flag* flag, const std::string& value);
  absl::Status TakeRest(const std::vector<std::string>& rest);

  std::string command_, summary_, positional_usage_;
  std::vector<Flag> flags_;
  std::vector<std::string>* positional_ = nullptr;
  std::string next_group_;
  std::vector<std::pair<std::string, std::string>> sections_;
  bool help_wanted_ = false;
};

}  // namespace attnlab

#endif  // TOOLS_LIB_ARGUMENTS_H_
