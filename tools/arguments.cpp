#include "tools/arguments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/ascii.hpp"
#include "base/path.hpp"
#include "base/printable.hpp"
#include "hub/model_name.hpp"
#include "tools/foreign_flags.hpp"

namespace pumice::tools {
namespace {

constexpr std::string_view kOneDashNames = "ub ctk ctv dev sys np oe pg hf jf md";

bool is_flag(std::string_view word) { return word.size() > 1 && word.front() == '-'; }

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// "on", "0", "0,1": what may follow a flag that is also one without a value.
bool is_switch_value(std::string_view word) {
  if (is_in_list("on off auto true false enabled disabled high medium low", word)) return true;
  return !word.empty() && word.find_first_not_of("0123456789,") == word.npos;
}

/// How many letters are to be changed, put in, left out or swapped with their neighbour.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      d[i][j] = std::min(
          {d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1] ? 1 : 0)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

/// "; did you mean --temp?", or nothing where no name is near.
std::string suggestion(std::string_view word, const std::vector<std::string>& names) {
  constexpr size_t kMostLetters = 40;  // longer is no flag mistyped
  const size_t start = std::min(word.find_first_not_of('-'), word.size());
  const std::string_view letters = word.substr(start);
  if (letters.empty() || letters.size() > kMostLetters) return {};
  // A third of the letters may be wrong; of two or three letters one, of one none.
  size_t least = std::max<size_t>(letters.size() / 3, letters.size() > 1 ? 1 : 0) + 1;
  std::string_view nearest;
  for (const std::string& name : names) {
    const std::string_view its = std::string_view(name).substr(name.find_first_not_of('-'));
    const size_t distance = edit_distance(letters, its);
    if (distance >= least || its.size() < 2) continue;
    least = distance;
    nearest = name;
  }
  return nearest.empty() ? std::string() : fmt::format("; did you mean {}?", nearest);
}

std::string typed_name(const std::string& long_name) {
  return (has_one_dash(long_name) ? "-" : "--") + long_name;
}

/// The name by which CLI11's messages call it and it is passed on; empty for a positional one.
std::string canonical_name(const CLI::Option& option) {
  if (!option.get_lnames().empty()) return "--" + option.get_lnames().front();
  return option.get_snames().empty() ? std::string() : "-" + option.get_snames().front();
}

const CLI::Option* find_flag(const CLI::App& command, const std::string& name) {
  if (!is_flag(name)) return nullptr;
  const bool two_dashes = name.starts_with("--");
  if (!two_dashes && name.size() > 2) {
    return has_one_dash(name.substr(1)) ? command.get_option_no_throw("-" + name) : nullptr;
  }
  return command.get_option_no_throw(name);
}

const CLI::App* find_command(const CLI::App& app, const std::string& name) {
  const auto found =
      app.get_subcommands([&name](const CLI::App* command) { return command->get_name() == name; });
  return found.empty() ? nullptr : found.front();
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  const auto is_shown = [](const CLI::App* command) { return !command->get_group().empty(); };
  for (const CLI::App* const command : app.get_subcommands(is_shown)) {
    names.push_back(command->get_name());
  }
  return names;
}

class Reader {
 public:
  Reader(const CLI::App& app, std::span<const std::string> words) : app_(app), words_(words) {}

  Result<Arguments> read() {
    PUMICE_TRY_STATUS(read_command());
    while (command_ != nullptr && !wants_help_ && !done()) PUMICE_TRY_STATUS(read_word());
    std::vector<std::string>& words = arguments_.words;
    if (command_ == nullptr || wants_help_) {
      words = of_program_;
      if (command_ != nullptr) words.push_back(command_->get_name());
      if (wants_help_) words.emplace_back("--help");
    } else {
      PUMICE_TRY_STATUS(place_bare_words());
      words = of_program_;
      words.push_back(command_->get_name());
      words.insert(words.end(), passed_.begin(), passed_.end());
    }
    std::ranges::reverse(words);
    return arguments_;
  }

 private:
  template <typename... Args>
  Error refuse(fmt::format_string<Args...> format, Args&&... args) const {
    return make_error(ErrorCode::kInvalidArgument, "{} (see pumice{} --help)",
                      fmt::format(format, std::forward<Args>(args)...),
                      command_ == nullptr ? "" : " " + command_->get_name());
  }

  bool done() const { return at_ == words_.size(); }

  Status read_command() {
    while (!done() && command_ == nullptr && !wants_help_) {
      const std::string word = words_[at_];
      if (word == "help" && at_ + 1 == words_.size()) {
        wants_help_ = true;
      } else if (word == "help") {
        ++at_;
        wants_help_ = true;
        return choose_command(words_[at_]);
      } else if (word == "version") {
        of_program_.emplace_back("--version");
      } else if (word == "--list-devices") {
        return choose_command("info");
      } else if (is_flag(word)) {
        const size_t equals = word.find('=');
        std::optional<std::string> value;
        if (equals != word.npos) value = word.substr(equals + 1);
        const std::string name = word.substr(0, equals);
        ++at_;
        PUMICE_TRY(const bool known, read_program_flag(name, value));
        if (!known) return misplaced_flag(name);
        continue;
      } else {
        PUMICE_TRY_STATUS(choose_command(word));
      }
      ++at_;
    }
    return {};
  }

  Status choose_command(const std::string& word) {
    command_ = find_command(app_, word);
    if (command_ != nullptr) return {};
    for (const ForeignCommand& foreign : foreign_commands()) {
      if (foreign.name != word) continue;
      if (!foreign.alias.empty()) {
        command_ = find_command(app_, std::string(foreign.alias));
        if (command_ != nullptr) return {};
      }
      return refuse("there is no subcommand '{}': {}", word, foreign.text);
    }
    std::error_code error;
    if (word.ends_with(".gguf") || std::filesystem::is_regular_file(from_utf8(word), error)) {
      return refuse("'{}' is not a subcommand; to run a model: pumice run {}", printable(word),
                    printable(word));
    }
    std::vector<std::string> names = command_names(app_);
    names.insert(names.end(), {"help", "version"});
    return refuse("unknown subcommand '{}'{}", printable(word), suggestion(word, names));
  }

  Error misplaced_flag(const std::string& name) const {
    const std::string shown = printable(name);
    for (const std::string& command : command_names(app_)) {
      const CLI::App* const its = find_command(app_, command);
      if (find_flag(*its, name) == nullptr) continue;
      return refuse("'{}' belongs after a subcommand: pumice {} {} …", shown, command, shown);
    }
    return refuse("unknown flag '{}'", shown);
  }

  Status read_word() {
    const std::string word = words_[at_++];
    if (!is_flag(word)) {
      bare_.push_back(word);
      return {};
    }
    if (word == "--") {
      while (!done()) bare_.push_back(words_[at_++]);
      return {};
    }
    std::string name = word;
    std::optional<std::string> value;
    if (const size_t equals = word.find('='); equals != word.npos) {
      name = word.substr(0, equals);
      value = word.substr(equals + 1);
    } else if (word.size() > 2 && word[1] != '-' && is_digit(word[2]) && !is_digit(word[1])) {
      name = word.substr(0, 2);  // -n128
      value = word.substr(2);
    }
    if (const CLI::Option* const flag = find_flag(*command_, name)) {
      if (name != "--help" && name != "-h") return read_flag(*flag, name, value);
    }
    PUMICE_TRY(const bool of_program, read_program_flag(name, value));
    if (of_program) return {};
    PUMICE_TRY(const bool foreign, read_foreign(name, value));
    if (!foreign) return unknown_flag(name);
    return {};
  }

  Status read_flag(const CLI::Option& flag, const std::string& name,
                   const std::optional<std::string>& value) {
    const bool again = std::ranges::find(given_, &flag) != given_.end();
    const bool takes_one = flag.get_items_expected_max() == 1 &&
                           flag.get_multi_option_policy() == CLI::MultiOptionPolicy::Throw;
    if (again && takes_one) return refuse("{} is given twice", name);
    given_.push_back(&flag);
    const std::string canonical = canonical_name(flag);
    if (canonical != name) arguments_.typed[canonical] = name;
    if (flag.get_items_expected_min() == 0) {
      passed_.push_back(value ? fmt::format("{}={}", canonical, *value) : canonical);
      if (!value && flag.get_items_expected_max() > 0 && !done() && !is_flag(words_[at_])) {
        passed_.push_back(words_[at_++]);
      }
      return {};
    }
    PUMICE_TRY(const std::string first, value_of(name, value));
    pass(flag, first);
    while (flag.get_allow_extra_args() && !done() && !is_flag(words_[at_])) {
      passed_.push_back(words_[at_++]);
    }
    return {};
  }

  /// False where the table has no such flag for the command.
  Result<bool> read_foreign(const std::string& name, std::optional<std::string> value) {
    if (command_->get_option_no_throw("--model") == nullptr) return false;
    const auto fits = [&](const ForeignFlag& foreign) {
      return is_in_list(foreign.names, name) &&
             (foreign.commands.empty() || is_in_list(foreign.commands, command_->get_name()));
    };
    const auto found = std::ranges::find_if(foreign_flags(), fits);
    if (found == foreign_flags().end()) return false;
    if (found->use == ForeignFlag::Use::kAlias) {
      PUMICE_TRY_STATUS(read_alias(*found, name, value));
      return true;
    }
    if (found->takes == ForeignFlag::Takes::kValue) {
      PUMICE_TRY(value, value_of(name, value));
    }
    if (!value && found->takes == ForeignFlag::Takes::kSwitch) {
      value = !done() && is_switch_value(words_[at_]) ? words_[at_++] : "on";
    }
    const bool harmless = value && is_in_list(found->harmless, *value);
    if (found->use == ForeignFlag::Use::kRefused && !harmless) {
      return refuse("{} is not supported: {}", name, found->text);
    }
    const std::string note =
        harmless ? fmt::format("{} {}: ignored, as that is already so", name, printable(*value))
                 : fmt::format("{}: ignored, {}", name, found->text);
    const bool is_new = std::ranges::find(arguments_.notes, note) == arguments_.notes.end();
    if (is_new) arguments_.notes.push_back(note);
    return true;
  }

  Status read_alias(const ForeignFlag& foreign, const std::string& name,
                    const std::optional<std::string>& value) {
    std::string_view ours = foreign.text;
    while (!ours.empty()) {
      const CLI::Option* const flag = find_flag(*command_, std::string(take_part(ours, ' ')));
      if (flag == nullptr) continue;
      // "--overflow shift": the flag with its value.
      const bool has_value = !ours.empty() && !ours.starts_with("--");
      return read_flag(*flag, name, has_value ? std::string(ours) : value);
    }
    return unknown_flag(name);
  }

  /// Flags that may stand anywhere.
  Result<bool> read_program_flag(const std::string& name, const std::optional<std::string>& value) {
    if (name == "--help" || name == "-h" || name == "--help-all") {
      wants_help_ = true;
      return true;
    }
    const bool is_version = name == "--version" || (name == "-v" && command_ == nullptr);
    if (is_version) {
      of_program_.insert(of_program_.begin(), "--version");
      return true;
    }
    if (name != "--config") return false;
    PUMICE_TRY(const std::string file, value_of(name, value));
    of_program_.insert(of_program_.end(), {"--config", file});
    return true;
  }

  Error unknown_flag(const std::string& name) const {
    const std::string shown = printable(name);
    std::vector<std::string> names;
    for (const CLI::Option* const option : command_->get_options()) {
      for (const std::string& its : option->get_lnames()) names.push_back(typed_name(its));
    }
    const std::string near = suggestion(name, names);
    if (near.empty()) {
      for (const std::string& other : command_names(app_)) {
        if (find_flag(*find_command(app_, other), name) == nullptr) continue;
        return refuse("pumice {} has no flag {}; pumice {} has", command_->get_name(), shown,
                      other);
      }
    }
    return refuse("unknown flag {}{}", shown, near);
  }

  /// Of a flag that was typed as --name=value, or is followed by its value.
  Result<std::string> value_of(const std::string& name, const std::optional<std::string>& value) {
    if (value) return *value;
    if (done()) return refuse("{} needs a value", name);
    return words_[at_++];
  }

  /// The model, and then the prompt; or what the command itself has without flags.
  Status place_bare_words() {
    const auto options = command_->get_options();
    const bool takes_bare =
        std::ranges::any_of(options, [](const CLI::Option* one) { return one->get_positional(); });
    if (takes_bare) {
      if (bare_.empty()) return {};
      passed_.emplace_back("--");
      passed_.insert(passed_.end(), bare_.begin(), bare_.end());
      return {};
    }
    std::span<const std::string> rest = bare_;
    const CLI::Option* const prompt = command_->get_option_no_throw("--prompt");
    const bool has_model = is_given("--model") || is_given("--hf") || is_given("--synthetic");
    if (!rest.empty() && !has_model && command_->get_option_no_throw("--model") != nullptr) {
      PUMICE_TRY_STATUS(place_model(rest.front()));
      rest = rest.subspan(1);
    }
    if (!rest.empty() && prompt != nullptr && !is_given("--prompt") && !is_given("--file")) {
      pass(*prompt, rest.front());
      rest = rest.subspan(1);
      if (!rest.empty()) {
        return refuse("unexpected argument '{}'; put a prompt of several words in quotes",
                      printable(rest.front()));
      }
    }
    if (rest.empty()) return {};
    return refuse("unexpected argument '{}'", printable(rest.front()));
  }

  Status place_model(const std::string& word) {
    const CLI::Option* const model = command_->get_option_no_throw("--model");
    const CLI::Option* const hub = command_->get_option_no_throw("--hf");
    std::error_code error;
    const bool looks_like_path = word.ends_with(".gguf") && word.find(':') == word.npos;
    const bool is_path = std::filesystem::exists(from_utf8(word), error) || looks_like_path ||
                         word.starts_with('.') || word.starts_with('/');
    const bool is_hub_name = !is_path && hub != nullptr && ModelName::parse(word).ok();
    if (!is_path && !is_hub_name) {
      return refuse("'{}' is neither a file nor a Hugging Face model such as user/repo:quant",
                    printable(word));
    }
    pass(is_hub_name ? *hub : *model, word);
    return {};
  }

  bool is_given(const char* name) const {
    const CLI::Option* const flag = command_->get_option_no_throw(name);
    return flag != nullptr && std::ranges::find(given_, flag) != given_.end();
  }
  void pass(const CLI::Option& flag, const std::string& value) {
    passed_.push_back(canonical_name(flag));
    passed_.push_back(value);
  }

  const CLI::App& app_;
  std::span<const std::string> words_;
  size_t at_ = 0;
  const CLI::App* command_ = nullptr;
  bool wants_help_ = false;
  std::vector<const CLI::Option*> given_;
  std::vector<std::string> of_program_;  ///< flags that stand before the command
  std::vector<std::string> passed_;
  std::vector<std::string> bare_;  ///< words that belong to no flag
  Arguments arguments_;
};

}  // namespace

bool has_one_dash(const std::string& long_name) { return is_in_list(kOneDashNames, long_name); }

Result<Arguments> read_arguments(const CLI::App& app, std::span<const std::string> words) {
  return Reader(app, words).read();
}

std::string Arguments::as_typed(const std::string& message) const {
  std::string text = message;
  for (const auto& [canonical, name] : typed) {
    for (size_t at = 0; (at = text.find(canonical, at)) != text.npos;) {
      const size_t end = at + canonical.size();
      const bool whole = end == text.size() || text.find_first_of(" :=,.)", end) == end;
      if (whole) text.replace(at, canonical.size(), name);
      at += whole ? name.size() : canonical.size();
    }
  }
  return text;
}

std::vector<std::string> typed_names(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const bool one_dash : {true, false}) {
    for (const std::string& name : option.get_lnames()) {
      if (has_one_dash(name) == one_dash) names.push_back(typed_name(name));
    }
  }
  return names;
}

std::string HelpFormatter::make_option_name(const CLI::Option* option, bool is_positional) const {
  if (is_positional || option->get_positional()) {
    return CLI::Formatter::make_option_name(option, is_positional);
  }
  return fmt::format("{}", fmt::join(typed_names(*option), ", "));
}

}  // namespace pumice::tools
