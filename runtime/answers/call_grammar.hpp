// Calls of tools as a model writes them, as a grammar.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "answers/answer_format.hpp"
#include "answers/tools.hpp"
#include "base/result.hpp"
#include "constraints/grammar.hpp"
#include "text/tokenizer.hpp"

namespace pumice {

/// A literal of a format: its control tokens as tokens, which have no text of their own, the rest as text.
Symbol mark_symbol(GrammarBuilder& builder, std::string_view literal, const Tokenizer& tokenizer);

/// One call or, unless `one_call`, several of the tools `wanted` (all if there are none), with the format's marks. Throws
/// OutOfFuel as the builder does. Errors: those of the arguments' schemas, naming the tool; kInvalidArgument for a format
/// in which they cannot be written.
Result<Symbol> calls_symbol(GrammarBuilder& builder, const AnswerFormat& format, const Tools& tools,
                            std::span<const std::string> wanted, bool one_call,
                            const Tokenizer& tokenizer);

}  // namespace pumice
