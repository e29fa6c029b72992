// A template's source as tokens, by Jinja2's rules: trim_blocks, lstrip_blocks, "-" and "+" at
// tags, raw blocks, comments, one newline at the end dropped, all newlines "\n".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace pumice::jinja {

enum class TokenKind {
  kData,           ///< text between tags
  kVariableBegin,  ///< {{
  kVariableEnd,
  kBlockBegin,  ///< {%
  kBlockEnd,
  kName,
  kString,   ///< unescaped
  kInteger,  ///< 64 bits
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;  ///< of data, names, strings and operators
  int64_t integer = 0;
  double number = 0;
  int line = 1;
};

/// The last token is kEnd. Errors: kBadFile, "line 3: what is wrong".
Result<std::vector<Token>> tokenize(std::string_view source);

template <typename... Args>
Error bad_template(int line, fmt::format_string<Args...> format, Args&&... args) {
  return make_error(ErrorCode::kBadFile, "chat template, line {}: {}", line,
                    fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace pumice::jinja
