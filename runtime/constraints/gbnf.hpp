// llama.cpp's grammar files.
//
//   name ::= alternatives, with | ( ) * + ? {n} {n,} {n,m}, "literals" and [classes] with \n \r \t \\ \" \[ \] \xHH
//   \uHHHH \UHHHHHHHH, `.` for any character, # comments; `root` is the start
//   <think>, <[1000]>: the token of that spelling, or id; !<think>: any other token that has text
#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "constraints/grammar.hpp"

namespace pumice {

/// The id of a token by its spelling, brackets included ("<think>").
using FindToken = std::function<std::optional<TokenId>(std::string_view)>;

/// Errors (kInvalidArgument) say line and column, counted from 1; kDoesNotFit as GrammarBuilder::build.
Result<Grammar> parse_gbnf(std::string_view text, const FindToken& find_token);

/// Its `root` within a larger grammar. Throws OutOfFuel as the builder does.
Result<Symbol> gbnf_symbol(GrammarBuilder& grammar, std::string_view text,
                           const FindToken& find_token);

}  // namespace pumice
