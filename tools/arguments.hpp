// The command line as people type it, made into what CLI11 is to read: flags of ours by one name
// each, flags of other runtimes replaced or left out, a model and a prompt that stand without a
// flag.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace pumice::tools {

struct Arguments {
  /// For CLI::App::parse, which takes them in reverse.
  std::vector<std::string> words;
  /// A line for each flag that was left out, saying why.
  std::vector<std::string> notes;
  /// Flags as they were typed, where CLI11 knows them by another name: "--predict" → "-n".
  std::map<std::string, std::string> typed;

  /// `message`, in which CLI11 names flags by their long names, with the names that were typed.
  std::string as_typed(const std::string& message) const;
};

/// What `words` (without the program's name) ask of `app`. With one dash any letters are one name:
/// -ngl is never -n -g -l. Errors (kInvalidArgument) name the flag or command that was typed and
/// what it may have meant, and say where to look.
Result<Arguments> read_arguments(const CLI::App& app, std::span<const std::string> words);

/// Whether the long name is typed with one dash, as other runtimes have it: "hf" for -hf.
bool has_one_dash(const std::string& long_name);

/// The names of a flag as they are typed, short ones first: "-hf", "--hf-repo".
std::vector<std::string> typed_names(const CLI::Option& option);

/// Help that shows them so.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override;
};

}  // namespace pumice::tools
