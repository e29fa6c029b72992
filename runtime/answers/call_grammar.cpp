#include "answers/call_grammar.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "answers/value_reader.hpp"
#include "base/printable.hpp"
#include "constraints/json_schema.hpp"

namespace pumice {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint32_t kMostCalls = 16;
constexpr uint32_t kIdCharacters = 9;      // what Mistral's templates ask for
constexpr uint32_t kMostNumberDigits = 3;  // of a call

std::string first_of(const std::vector<std::string>& literals) {
  return literals.empty() ? std::string() : literals.front();
}

/// Makes the calls of one format.
class CallMaker {
 public:
  CallMaker(GrammarBuilder& builder, const AnswerFormat& format, const Tools& tools,
            const Tokenizer& tokenizer)
      : builder_(builder), format_(format), tools_(tools), tokenizer_(tokenizer) {}

  Result<Symbol> make(std::span<const std::string> wanted, bool one_call) {
    std::vector<Symbol> each;
    for (const Json& tool : tools_.json()) {
      const Json& function = tool["function"];
      const std::string& name = function["name"].get_ref<const std::string&>();
      if (!wanted.empty() && std::ranges::find(wanted, name) == wanted.end()) continue;
      Result<Symbol> call = call_of(name, function["parameters"].dump());
      if (!call.ok()) {
        return make_error(call.error().code, "tool {}: {}", printable(name, 60),
                          call.error().message);
      }
      each.push_back(*call);
    }
    return all_of(builder_.choice(each), one_call ? 1 : kMostCalls);
  }

 private:
  Symbol mark(std::string_view literal) { return mark_symbol(builder_, literal, tokenizer_); }
  Symbol text(std::string_view literal) { return builder_.literal(literal); }
  Symbol line() { return builder_.optional(text("\n")); }
  Symbol characters(std::string_view characters, uint32_t min, uint32_t max) {
    ByteSet bytes;
    for (const char c : characters) bytes.set(static_cast<unsigned char>(c));
    ExpressionSet& set = builder_.expressions();
    return builder_.lexeme(set.repeat(set.bytes(bytes), min, max));
  }
  Symbol digits() { return characters("0123456789", 1, kMostNumberDigits); }
  /// From one to `most`.
  Symbol several(Symbol one, Symbol between, uint32_t most) {
    if (most == 1) return one;
    return builder_.sequence(
        {one, builder_.repeat(builder_.sequence({between, one}), 0, most - 1)});
  }

  Result<Symbol> call_of(std::string_view name, const std::string& schema) {
    switch (format_.shape) {
      case CallShape::kJson:
        return json_call(name, schema);
      case CallShape::kNamed:
        return named_call(name, schema);
      case CallShape::kTagged:
        return tagged_call(name, schema);
      case CallShape::kPython:
        return python_call(name, schema);
      case CallShape::kHarmony:
        return harmony_call(name, schema);
      case CallShape::kNone:
        break;
    }
    return make_error(ErrorCode::kInvalidArgument, "answers of this format have no calls");
  }

  /// Calls with what stands around all of them.
  Symbol all_of(Symbol one, uint32_t most) {
    switch (format_.shape) {
      case CallShape::kJson:
        return json_calls(one, most);
      case CallShape::kPython:
        return builder_.sequence({mark(format_.call_open), text("["),
                                  several(one, text(", "), most), text("]"),
                                  mark(format_.call_close)});
      case CallShape::kHarmony:
        return one;  // a message is one call, and ends the answer
      default:
        break;
    }
    if (format_.call_open.empty()) most = 1;
    if (format_.section_open.empty()) return several(one, line(), most);
    const uint32_t most_within = format_.section_per_call ? 1 : most;
    const Symbol section = builder_.sequence({mark(format_.section_open.front()), line(),
                                              several(one, line(), most_within), line(),
                                              mark(first_of(format_.section_close))});
    return several(section, line(), format_.section_per_call ? most : 1);
  }

  Symbol json_calls(Symbol one, uint32_t most) {
    const Symbol begin = builder_.sequence({mark(format_.call_open), line()});
    const Symbol end = builder_.sequence({line(), mark(format_.call_close)});
    if (format_.members.in_list) {
      return builder_.sequence({begin, text("["), several(one, text(", "), most), text("]"), end});
    }
    if (format_.bare) return one;  // the whole turn
    if (format_.call_open.empty()) return builder_.sequence({one, end});
    return several(builder_.sequence({begin, one, end}), line(), most);
  }

  Result<Symbol> json_call(std::string_view name, const std::string& schema) {
    const AnswerFormat::JsonMembers& members = format_.members;
    PUMICE_TRY(const Symbol arguments, json_object_symbol(builder_, schema));
    std::vector<Symbol> parts = {text("{")};
    if (!members.number.empty()) {
      parts.push_back(text(fmt::format("{}: \"", json_quoted(members.number))));
      parts.push_back(digits());
      parts.push_back(text("\", "));
    }
    parts.push_back(text(fmt::format("{}: {}, {}: ", json_quoted(members.name), json_quoted(name),
                                     json_quoted(members.arguments))));
    parts.push_back(arguments);
    parts.push_back(text("}"));
    return builder_.sequence(parts);
  }

  Result<Symbol> named_call(std::string_view name, const std::string& schema) {
    ValueWriting writing;
    if (!format_.quote.empty()) {
      writing.quote = mark(format_.quote);
      writing.avoid = format_.quote;
    }
    PUMICE_TRY(const Symbol arguments, json_object_symbol(builder_, schema, writing));
    std::vector<Symbol> parts = {mark(format_.call_open)};
    if (!format_.type_end.empty()) {
      parts.push_back(text("function"));
      parts.push_back(mark(format_.type_end));
    }
    if (format_.name_is_id) parts.push_back(text("functions."));
    parts.push_back(text(name));
    if (format_.name_is_id) {
      parts.push_back(text(":"));
      parts.push_back(digits());
    }
    if (!format_.id_open.empty()) {
      parts.push_back(builder_.optional(builder_.sequence(
          {mark(format_.id_open),
           characters("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
                      kIdCharacters, kIdCharacters)})));
    }
    parts.push_back(mark(first_of(format_.name_end)));
    if (!format_.args_close.empty()) parts.push_back(line());
    parts.push_back(arguments);
    if (!format_.args_close.empty()) parts.push_back(line());
    parts.push_back(mark(format_.args_close));
    parts.push_back(mark(format_.call_close));
    return builder_.sequence(parts);
  }

  Result<Symbol> tagged_call(std::string_view name, const std::string& schema) {
    const bool has_kind = format_.key_end_has_kind && format_.key_end.size() == 2;
    const Symbol before = format_.value_lines ? text("\n") : builder_.empty();
    const auto behind_name = [&](const std::string& end) {
      const Symbol open = format_.value_open.empty()
                              ? builder_.empty()
                              : builder_.sequence({line(), mark(format_.value_open)});
      return builder_.sequence({mark(end), open, before});
    };
    ArgumentWriting writing;
    writing.values.avoid = format_.value_close;
    writing.open = writing.between = writing.close = line();
    writing.before_name = mark(format_.key_open);
    writing.behind_name = behind_name(format_.key_end.back());
    writing.behind_value = builder_.sequence({before, mark(format_.value_close)});
    writing.raw_texts.emplace();
    writing.raw_texts->behind_name = behind_name(format_.key_end.front());
    writing.raw_texts->behind_value = writing.behind_value;
    writing.raw_texts->is_text = [&, has_kind](std::string_view argument) {
      return has_kind || tools_.types_of(name, argument) == kStringType;
    };
    PUMICE_TRY(const Symbol arguments, json_arguments_symbol(builder_, schema, writing));
    return builder_.sequence({mark(format_.call_open), text(name), mark(first_of(format_.name_end)),
                              arguments, mark(format_.call_close)});
  }

  Result<Symbol> python_call(std::string_view name, const std::string& schema) {
    ArgumentWriting writing;
    writing.values.is_python = true;
    writing.open = text("(");
    writing.between = text(", ");
    writing.close = text(")");
    writing.before_name = writing.behind_value = builder_.empty();
    writing.behind_name = text("=");
    writing.names_are_identifiers = true;
    PUMICE_TRY(const Symbol arguments, json_arguments_symbol(builder_, schema, writing));
    return builder_.sequence({text(name), arguments});
  }

  Result<Symbol> harmony_call(std::string_view name, const std::string& schema) {
    PUMICE_TRY(const Symbol arguments, json_object_symbol(builder_, schema));
    return builder_.sequence({mark("<|channel|>"), text("commentary to=functions."), text(name),
                              text(" "), mark("<|constrain|>"), text("json"), mark("<|message|>"),
                              arguments, builder_.optional(mark("<|call|>"))});
  }

  GrammarBuilder& builder_;
  const AnswerFormat& format_;
  const Tools& tools_;
  const Tokenizer& tokenizer_;
};

}  // namespace

Symbol mark_symbol(GrammarBuilder& builder, std::string_view literal, const Tokenizer& tokenizer) {
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  std::vector<Symbol> parts;
  std::string text;
  for (const Fragment& fragment : tokenizer.special_tokens().split(literal, true)) {
    if (fragment.token && vocabulary.type(*fragment.token) == TokenType::kControl) {
      if (!text.empty()) parts.push_back(builder.literal(std::exchange(text, {})));
      parts.push_back(builder.tokens({*fragment.token}));
    } else {
      text += fragment.text;
    }
  }
  if (!text.empty()) parts.push_back(builder.literal(text));
  return builder.sequence(parts);
}

Result<Symbol> calls_symbol(GrammarBuilder& builder, const AnswerFormat& format, const Tools& tools,
                            std::span<const std::string> wanted, bool one_call,
                            const Tokenizer& tokenizer) {
  return CallMaker(builder, format, tools, tokenizer).make(wanted, one_call);
}

}  // namespace pumice
