#include "answers/answer_constraint.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "answers/call_grammar.hpp"
#include "base/json.hpp"
#include "base/printable.hpp"
#include "constraints/fuel.hpp"
#include "constraints/json_schema.hpp"

namespace pumice {
namespace {

constexpr uint32_t kMostBlanks = 4;  // between reasoning and the answer

/// Makes the grammar of one answer.
class AnswerHolder {
 public:
  AnswerHolder(const AnswerWish& wish, const AnswerFrame& frame, const Tokenizer& tokenizer)
      : wish_(wish), frame_(frame), tokenizer_(tokenizer) {}

  Result<Grammar> make() {
    const bool has_tools = frame_.format != nullptr && frame_.tools != nullptr &&
                           !frame_.tools->empty() && frame_.format->shape != CallShape::kNone &&
                           !frame_.has_header;
    std::vector<Symbol> answers;
    if (!wish_.needs_call) {
      PUMICE_TRY(const Symbol value, held_text());
      answers.push_back(in_marks(value));
    }
    if (wish_.needs_call && !has_tools) {
      return make_error(ErrorCode::kInvalidArgument, "a call cannot be asked for: {}",
                        frame_.format == nullptr || frame_.tools == nullptr || frame_.tools->empty()
                            ? "there are no tools to call"
                            : "answers of this format have no calls");
    }
    if (has_tools) {
      PUMICE_TRY(const Symbol calls, calls_symbol(builder_, *frame_.format, *frame_.tools,
                                                  wish_.tools, wish_.one_call, tokenizer_));
      answers.push_back(calls);
    }
    return std::move(builder_).build(behind_reasoning(builder_.choice(answers)));
  }

 private:
  Symbol mark(std::string_view literal) { return mark_symbol(builder_, literal, tokenizer_); }
  bool is_harmony() const {
    return frame_.format != nullptr && frame_.format->shape == CallShape::kHarmony;
  }

  Result<Symbol> held_text() {
    if (!wish_.kind) {
      std::vector<Symbol> choices;
      for (const std::string& choice : wish_.choices) choices.push_back(builder_.literal(choice));
      return builder_.choice(choices);
    }
    return constraint_symbol(builder_, *wish_.kind, wish_.text, [this](std::string_view spelling) {
      return tokenizer_.vocabulary().find(spelling);
    });
  }

  /// The text of an answer, with the marks that models write around it.
  Symbol in_marks(Symbol text) {
    if (frame_.format == nullptr) return text;
    if (is_harmony()) {
      if (frame_.has_header) return text;
      const Symbol json = builder_.sequence(
          {builder_.literal(" "), mark("<|constrain|>"), builder_.literal("json")});
      return builder_.sequence({mark("<|channel|>"), builder_.literal("final"),
                                builder_.optional(json), mark("<|message|>"), text});
    }
    // Marks that belong to nothing come in pairs.
    std::vector<Symbol> ways = {text};
    const std::vector<std::string>& pairs = frame_.format->dropped;
    for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
      ways.push_back(builder_.sequence(
          {mark(pairs[i]), blanks(), text, builder_.optional(mark(pairs[i + 1]))}));
    }
    return builder_.choice(ways);
  }

  Symbol blanks() {
    ByteSet blanks;
    for (const char c : {' ', '\n'}) blanks.set(static_cast<uint8_t>(c));
    ExpressionSet& expressions = builder_.expressions();
    return builder_.lexeme(expressions.repeat(expressions.bytes(blanks), 0, kMostBlanks));
  }

  /// Any text up to `close`, which may be a control token, and that.
  Symbol free_text(std::string_view close) {
    ExpressionSet& expressions = builder_.expressions();
    const Expression has_close = expressions.concat(std::vector<Expression>{
        expressions.everything(), expressions.literal(close), expressions.everything()});
    return builder_.sequence({builder_.lexeme(expressions.complement(has_close)), mark(close)});
  }

  Symbol behind_reasoning(Symbol answer) {
    if (frame_.format == nullptr) return answer;
    const AnswerFormat& format = *frame_.format;
    if (is_harmony()) {
      if (frame_.has_header || !frame_.may_reason) return answer;
      const Symbol thoughts = builder_.sequence({mark("<|channel|>"), builder_.literal("analysis"),
                                                 mark("<|message|>"), free_text("<|end|>"),
                                                 mark("<|start|>"), builder_.literal("assistant")});
      return builder_.sequence({builder_.optional(thoughts), answer});
    }
    const bool may = frame_.begins_reasoning || frame_.may_reason;
    if (!may || format.think_close.empty() || format.think_open.empty()) return answer;
    const Symbol thoughts = builder_.sequence({free_text(format.think_close), blanks()});
    if (frame_.begins_reasoning) return builder_.sequence({thoughts, answer});
    std::vector<Symbol> opened;
    for (const std::string& open : format.think_open) {
      opened.push_back(builder_.sequence({mark(open), thoughts}));
    }
    return builder_.sequence({builder_.optional(builder_.choice(opened)), answer});
  }

  const AnswerWish& wish_;
  const AnswerFrame& frame_;
  const Tokenizer& tokenizer_;
  GrammarBuilder builder_;
};

}  // namespace

bool AnswerFrame::is_text_alone() const {
  if (format == nullptr) return true;
  const bool has_tools = tools != nullptr && !tools->empty();
  return format->shape != CallShape::kHarmony && format->dropped.empty() && !begins_reasoning &&
         !may_reason && !has_tools;
}

Status need_call(std::vector<std::string> names, const Tools& offered, AnswerWish& wish) {
  if (offered.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "there are no tools to call");
  }
  for (const std::string& name : names) {
    if (offered.contains(name)) continue;
    return make_error(ErrorCode::kInvalidArgument, "there is no tool \"{}\"", printable(name, 60));
  }
  wish.needs_call = true;
  wish.tools = std::move(names);
  return {};
}

Status choose_tools(std::string_view choice, std::shared_ptr<const Tools>& offered,
                    AnswerWish& wish) {
  if (choice.empty() || choice == "auto") return {};
  if (choice == "none") {
    offered = nullptr;
    return {};
  }
  const bool is_any = choice == "required";
  PUMICE_TRY_STATUS(
      need_call(is_any ? std::vector<std::string>() : std::vector{std::string(choice)},
                offered == nullptr ? Tools() : *offered, wish));
  wish.one_call = !is_any;
  return {};
}

Result<Grammar> answer_constraint(const AnswerWish& wish, const AnswerFrame& frame,
                                  const Tokenizer& tokenizer) {
  // A whole text's own messages are the better ones.
  if (frame.is_text_alone() && wish.kind && !wish.needs_call) {
    return compile_grammar(*wish.kind, wish.text, [&](std::string_view spelling) {
      return tokenizer.vocabulary().find(spelling);
    });
  }
  return within_fuel("what the answer is held to",
                     [&] { return AnswerHolder(wish, frame, tokenizer).make(); });
}

std::string answer_constraint_key(const AnswerWish& wish, const AnswerFrame& frame) {
  using Json = nlohmann::ordered_json;
  const auto dumped = [](const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  std::string key = fmt::format("{} {} {}", wish.kind ? static_cast<int>(*wish.kind) : -1,
                                wish.needs_call, wish.one_call);
  if (!frame.is_text_alone()) {
    key += fmt::format(" {} {} {} {}", frame.format->name, frame.begins_reasoning, frame.may_reason,
                       frame.has_header);
  }
  const bool has_tools = frame.tools != nullptr && !frame.tools->empty();
  return fmt::format("{}\n{}\n{}\n{}\n{}", key, wish.text, dumped(Json(wish.choices)),
                     dumped(Json(wish.tools)), has_tools ? dumped(frame.tools->json()) : "");
}

}  // namespace pumice
