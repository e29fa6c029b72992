// Texts of strings and names: expressions over what a JSON string says (UTF-8), and how JSON writes it.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "constraints/expression.hpp"

namespace pumice::schema {

constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();

class SchemaTexts {
 public:
  explicit SchemaTexts(ExpressionSet& set);

  ExpressionSet& set() { return set_; }
  void spend(size_t amount) { set_.fuel().spend(amount); }

  /// Any well-formed UTF-8.
  Expression all() const { return all_; }
  Expression without(Expression a, Expression b) { return set_.both(a, set_.complement(b)); }
  /// Those of `min` to `max` code points.
  Expression limited(Expression texts, size_t min, size_t max);
  /// Searched for, as `pattern` is. Errors (kInvalidArgument): not a regular expression, or not supported.
  Result<Expression> pattern(std::string_view regex);
  /// Texts that every reader takes for the format, and at least all that any does. Errors (kInvalidArgument):
  /// unknown.
  Result<std::pair<Expression, Expression>> format(std::string_view name);

  /// The JSON strings, quotes included, that say one of `texts` in `min` to `max` code points. Characters
  /// are written as they are where JSON allows it; \uXXXX for them is taken only where every text is allowed.
  Expression quoted(Expression texts, size_t min = 0, size_t max = kNoLimit);
  /// The one way in which `text` is written here.
  static std::string quoted(std::string_view text);

 private:
  Expression written(Expression texts);

  ExpressionSet& set_;
  Expression all_;
  Expression character_;  // of a JSON string, as written
};

/// Regular expressions (of whole texts, ECMA's) of a format, empty if it is unknown.
struct FormatRegexes {
  std::string some;  ///< texts that every reader takes for it
  std::string most;  ///< all that any reader does, or more
  size_t max_length = kNoLimit;
};
FormatRegexes format_regexes(std::string_view name);

}  // namespace pumice::schema
