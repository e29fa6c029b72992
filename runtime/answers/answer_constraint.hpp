// What an answer is held to: text of a schema, a grammar or an expression, or calls of tools, behind the reasoning that the
// model may do first.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "answers/answer_format.hpp"
#include "answers/tools.hpp"
#include "base/result.hpp"
#include "constraints/constraint_compiler.hpp"
#include "text/tokenizer.hpp"

namespace pumice {

struct AnswerWish {
  /// What the text is held to; with tools offered, calls may come instead of it.
  std::optional<ConstraintKind> kind = {};
  std::string text = {};
  /// The text is one of these; not beside a kind.
  std::vector<std::string> choices = {};
  /// A tool is called: one of `tools`, or any that is offered if there are none.
  bool needs_call = false;
  std::vector<std::string> tools = {};
  bool one_call = false;  ///< at most

  bool given() const { return kind.has_value() || !choices.empty() || needs_call; }
};

/// Has a tool called: one of `names`, or any if there are none. Errors (kInvalidArgument): tools that are not offered.
Status need_call(std::vector<std::string> names, const Tools& offered, AnswerWish& wish);

/// By a word: "auto" or empty, "none", "required", or the name of the one tool that is called. `offered` (null: none) is
/// null where the model is not to be told of tools. Errors: need_call's.
Status choose_tools(std::string_view choice, std::shared_ptr<const Tools>& offered,
                    AnswerWish& wish);

/// Where an answer stands. What it points to must live as long.
struct AnswerFrame {
  const AnswerFormat* format = nullptr;  ///< null: the answer is text alone
  const Tools* tools = nullptr;          ///< that are offered; null: none
  bool begins_reasoning = false;         ///< the prompt ended within reasoning
  bool may_reason = false;               ///< the model may begin with reasoning
  bool has_header = false;               ///< harmony: the prompt ended with a message's header

  /// Nothing but the text that is held to can come.
  bool is_text_alone() const;
};

/// All texts that the wish allows: reasoning, which is free and ends as its format has it, then what is held to. Control
/// tokens that the format has are tokens of the grammar. Errors: those of the kind's compiler and of schemas of tools'
/// arguments (naming the tool); kInvalidArgument for calls in a format without any; kDoesNotFit for what costs too much.
Result<Grammar> answer_constraint(const AnswerWish& wish, const AnswerFrame& frame,
                                  const Tokenizer& tokenizer);
/// All that the grammar depends on, but for the tokenizer.
std::string answer_constraint_key(const AnswerWish& wish, const AnswerFrame& frame);

}  // namespace pumice
