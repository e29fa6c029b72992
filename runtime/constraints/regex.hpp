// Regular expressions as text: what ECMA-262 (with the u flag), PCRE and JSON Schema's `pattern` have in common.
//
//   . [a-z] [^a-z] \d \D \w \W \s \S \n \r \t \f \v \0 \cA \xHH \uHHHH \u{H…} \p{…} \P{…}
//   ( ) (?: ) (?<name> ) | * + ? {n} {n,} {n,m}, each also lazy (the same texts)   ^ $
//
// Characters are Unicode's, in UTF-8. `.` is any character but line ends; \d and \w are ASCII's, \s is ECMA's. What
// cannot be said by a regular language or is of one dialect only is an error that names it and where it is: \b, \B,
// look-around, back-references, flags, possessive quantifiers.
#pragma once

#include <string_view>

#include "constraints/expression.hpp"

namespace pumice {

enum class RegexAnchors {
  kWhole,   ///< the expression is of the whole text; ^ and $ say nothing new
  kSearch,  ///< JSON Schema's `pattern`: it is found somewhere in the text, unless ^ and $ say where
};

/// Matches well-formed UTF-8 only. Errors (kInvalidArgument) name what is wrong and at which byte; kDoesNotFit: deeper
/// or larger than the set's fuel allows.
Result<Expression> parse_regex(ExpressionSet& set, std::string_view pattern,
                               RegexAnchors anchors = RegexAnchors::kWhole);

}  // namespace pumice
