// The parsers' place among the tokens, and how deep they are.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/printable.hpp"
#include "text/jinja/budget.hpp"
#include "text/jinja/lexer.hpp"

namespace pumice::jinja {

class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  int line() const { return current().line; }

  bool is(TokenKind kind) const { return current().kind == kind; }
  bool is_operator(std::string_view text) const { return is(TokenKind::kOperator) && has(text); }
  bool is_name(std::string_view text) const { return is(TokenKind::kName) && has(text); }
  bool is_any_name(std::initializer_list<std::string_view> names) const {
    for (const std::string_view name : names) {
      if (is_name(name)) return true;
    }
    return false;
  }

  Token take() {
    Token token = current();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool skip_operator(std::string_view text) { return is_operator(text) && (take(), true); }
  bool skip_name(std::string_view text) { return is_name(text) && (take(), true); }

  Status expect_operator(std::string_view text) {
    if (skip_operator(text)) return {};
    return unexpected(fmt::format("'{}'", text));
  }
  Status expect(TokenKind kind, std::string_view what) {
    if (!is(kind)) return unexpected(what);
    take();
    return {};
  }
  Result<std::string> expect_identifier() {
    if (!is(TokenKind::kName)) return unexpected("a name");
    return take().text;
  }

  Error unexpected(std::string_view expected) const {
    return bad_template(line(), "expected {}, found {}", expected, describe(current()));
  }

  /// Counts a level while it lives.
  class Level {
   public:
    explicit Level(TokenStream& stream) : stream_(stream) { ++stream_.depth_; }
    ~Level() { --stream_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    TokenStream& stream_;
  };
  Status check_depth(int depth = 0) const {
    if (depth_ <= kMaxDepth && depth <= kMaxDepth) return {};
    return bad_template(line(), "nested more than {} deep", kMaxDepth);
  }

  /// Names read since a macro began, of those that its call may fill.
  struct Uses {
    bool caller = false, varargs = false, kwargs = false;
  };
  Uses uses;

 private:
  bool has(std::string_view text) const { return current().text == text; }

  static std::string describe(const Token& token) {
    switch (token.kind) {
      case TokenKind::kVariableEnd:
        return "the end of the tag '}}'";
      case TokenKind::kBlockEnd:
        return "the end of the tag '%}'";
      case TokenKind::kEnd:
        return "the end of the template";
      case TokenKind::kInteger:
      case TokenKind::kFloat:
        return "a number";
      default:
        return fmt::format("'{}'", printable(token.text, 40));
    }
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace pumice::jinja
