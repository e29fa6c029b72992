#include "tools/man_pages.hpp"

#include <fmt/format.h>

#include "base/ascii.hpp"

namespace pumice::tools {
namespace {

/// `text` as roff prints it letter by letter: hyphens that can be copied to a shell, and no line
/// taken for a request.
std::string literal(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool begins = i == 0 || text[i - 1] == '\n';
    if (begins && (text[i] == '.' || text[i] == '\'')) out += "\\&";
    if (text[i] == '\\') {
      out += "\\e";
    } else if (text[i] == '-') {
      out += "\\-";
    } else if (text[i] == '\'') {
      out += "\\(aq";  // else a right quote
    } else if (text[i] == '`') {
      out += "\\(ga";
    } else if (text[i] == '^') {
      out += "\\(ha";
    } else if (text[i] == '~') {
      out += "\\(ti";
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string bold(std::string_view text) { return fmt::format("\\fB{}\\fR", literal(text)); }
std::string italic(std::string_view text) { return fmt::format("\\fI{}\\fR", literal(text)); }

/// "A sentence." of what may end without a full stop.
std::string sentence(const std::string& text) {
  return literal(text) + (text.empty() || text.ends_with('.') ? "" : ".");
}

std::string joined(std::span<const std::string> words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + bold(word);
  return text;
}

std::string page_name(const CommandEntry& command, bool is_program) {
  return is_program ? command.name : "pumice-" + command.name;
}

std::string flag_text(const FlagEntry& flag) {
  std::string names = flag.is_positional ? italic(flag.names[0]) : joined(flag.names);
  if (!flag.value.empty() && !flag.is_positional) {
    const std::string value = italic(flag.value);
    names += flag.value_is_optional ? fmt::format(" [{}]", value) : " " + value;
  }
  std::string text = fmt::format(".TP\n{}\n{}\n", names, sentence(flag.help));
  if (!flag.choices.empty()) text += fmt::format("One of {}.\n", joined(flag.choices));
  if (!flag.range.empty()) text += fmt::format("Range: {}.\n", literal(flag.range));
  if (!flag.standard.empty()) text += fmt::format("Default: {}.\n", bold(flag.standard));
  if (flag.is_required) text += "Required.\n";
  if (!flag.needs.empty()) text += fmt::format("Needs {}.\n", joined(flag.needs));
  if (!flag.excludes.empty()) text += fmt::format("Excludes {}.\n", joined(flag.excludes));
  if (!flag.variable.empty()) text += fmt::format("Environment: {}.\n", bold(flag.variable));
  return text;
}

/// Lines as they are.
std::string section(std::string_view title, std::string_view lines) {
  while (lines.ends_with('\n')) lines.remove_suffix(1);
  if (lines.empty()) return {};
  return fmt::format(".SH {}\n.nf\n{}\n.fi\n", title, literal(lines));
}

/// What stands below a help: notes, and examples behind "Examples:".
std::string footer_text(std::string_view footer) {
  std::string notes;
  std::string examples;
  bool in_examples = false;
  while (!footer.empty()) {
    std::string_view line = take_part(footer, '\n');
    for (const std::string_view head : {"Examples:", "Example:"}) {
      if (!line.starts_with(head)) continue;
      in_examples = true;
      line.remove_prefix(head.size());
      line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
      break;
    }
    if (in_examples && line.empty()) continue;
    if (in_examples && line.starts_with("  ")) line.remove_prefix(2);
    (in_examples ? examples : notes).append(line).append("\n");
  }
  return section("NOTES", notes) + section("EXAMPLES", examples);
}

std::string page_text(const CommandEntry& command, bool is_program, std::string_view version) {
  const std::string name = page_name(command, is_program);
  std::string text = fmt::format(
      ".\\\" Written by pumice manual from the program's flags.\n"
      ".TH {} 1 \"\" \"Pumice {}\" \"Pumice\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n",
      literal(upper_case(name)), version, literal(name), literal(command.help));
  text += is_program ? bold("pumice") : bold("pumice") + " " + bold(command.name);
  text += fmt::format(" [{}]", italic("OPTIONS"));
  for (const FlagEntry& flag : command.positionals) {
    text += fmt::format(" {}{}", italic(flag.names[0]), flag.is_repeatable ? "..." : "");
  }
  if (is_program) text += " " + italic("COMMAND");
  text += "\n";
  if (!command.positionals.empty()) text += ".SH ARGUMENTS\n";
  for (const FlagEntry& flag : command.positionals) text += flag_text(flag);
  text += ".SH OPTIONS\n";
  for (const FlagGroup& group : command.groups) {
    if (group.name != "Options") text += fmt::format(".SS {}\n", literal(group.name));
    for (const FlagEntry& flag : group.flags) text += flag_text(flag);
  }
  return text;
}

}  // namespace

std::vector<ManPage> man_pages(std::span<const CommandEntry> commands, std::string_view version) {
  std::vector<ManPage> pages;
  std::string list = ".SH COMMANDS\n";
  std::string others;
  for (const CommandEntry& command : commands.subspan(1)) {
    const std::string name = page_name(command, false);
    list += fmt::format(".TP\n\\fB{}\\fR(1)\n{}\n", literal(name), sentence(command.help));
    others += fmt::format("{}\\fB{}\\fR(1)", others.empty() ? "" : ",\n", literal(name));
  }
  for (const CommandEntry& command : commands) {
    const bool is_program = pages.empty();
    std::string text = page_text(command, is_program, version);
    if (is_program) text += list;
    text += footer_text(command.footer);
    text += fmt::format(".SH SEE ALSO\n{}\n", is_program ? others : "\\fBpumice\\fR(1)");
    pages.push_back({.name = page_name(command, is_program), .text = std::move(text)});
  }
  return pages;
}

}  // namespace pumice::tools
