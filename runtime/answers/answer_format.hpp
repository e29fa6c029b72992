// How families of models write their answers: reasoning and calls of tools. A family is a row.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pumice {

enum class CallShape : uint8_t {
  kNone,     ///< no calls, reasoning at most
  kJson,     ///< an object, or an array of some, with the name and the arguments as members
  kNamed,    ///< the name, then the arguments as one object
  kTagged,   ///< the name, then each argument between tags
  kPython,   ///< [name(key=value, …), …]
  kHarmony,  ///< messages whose headers name a channel and a recipient
};

/// The literals of a format; blanks between them do not count. What is empty does not exist. Of a
/// literal that ends a part, several may be given: what stands there ends it.
struct AnswerFormat {
  std::string name;
  CallShape shape = CallShape::kNone;

  std::vector<std::string> think_open = {"<think>"};
  std::string think_close = "</think>";
  /// Reasoning may begin anywhere, not only at the answer's beginning.
  bool thinks_anywhere = false;
  /// Calls are seen within reasoning too: such models make them there. Others quote them.
  bool calls_in_thoughts = false;
  /// Marks around the text that belong to nothing.
  std::vector<std::string> dropped = {};

  /// Around all calls; models leave them out.
  std::vector<std::string> section_open = {};
  std::vector<std::string> section_close = {};
  bool section_per_call = false;  ///< such a section has one call
  /// Around each call. The opening begins a call wherever it stands.
  std::string call_open = {};
  std::string call_close = {};
  /// Calls may stand without any mark as the whole answer: an object, or a list as Python has it.
  bool bare = false;

  /// kJson: how models write it; what is read has more ways.
  struct JsonMembers {
    std::string name = "name";
    std::string arguments = "arguments";
    std::string number = {};  ///< before the name, a string of digits
    bool in_list = false;     ///< all calls are in one array
  };
  JsonMembers members = {};

  /// kNamed, kTagged: between the name and the first argument.
  std::vector<std::string> name_end = {};
  /// kNamed: between a call's name and its id, which then ends with name_end.
  std::string id_open = {};
  /// kNamed: what stands for the name is "functions.NAME:NUMBER", which is also the id.
  bool name_is_id = false;
  /// kNamed: before the name stands what is no part of it ("function"), up to this.
  std::string type_end = {};
  std::string args_close = {};

  /// kTagged: key_open KEY key_end VALUE value_close.
  std::string key_open = {};
  std::vector<std::string> key_end = {};
  std::string value_open = {};  ///< where key_end is not what comes right before the value
  std::string value_close = {};
  /// kTagged: a newline after key_end and one before value_close are no part of a value.
  bool value_lines = false;
  /// kTagged: key_end's first says that the value is a string, its second that it is JSON.
  bool key_end_has_kind = false;

  /// What quotes strings besides " and '.
  std::string quote = {};
};

/// The known formats, by family; the first is for models of which nothing is known, the JSON that
/// most were taught.
std::span<const AnswerFormat> answer_formats();
/// Null: there is none of that name.
const AnswerFormat* find_answer_format(std::string_view name);
/// By what the source of a chat template writes, and by the file's general.architecture where that
/// says nothing. Null: nothing of it is known.
const AnswerFormat* answer_format_of(std::string_view template_source,
                                     std::string_view architecture);

}  // namespace pumice
