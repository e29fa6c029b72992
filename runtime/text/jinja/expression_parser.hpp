// Expressions, with Jinja2's precedence: a filter or test binds closer than arithmetic, "~" closer
// than "+", and "**" joins from the left.
#pragma once

#include <string_view>

#include "base/result.hpp"
#include "text/jinja/ast.hpp"
#include "text/jinja/token_stream.hpp"

namespace pumice::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& stream) : stream_(stream) {}

  Result<ExprPtr> expression();
  /// One without "if … else" at its top.
  Result<ExprPtr> plain_expression() { return logic_or(); }
  /// An expression or, with commas, a tuple; ends before the name `end`.
  Result<ExprPtr> tuple(bool conditional, std::string_view end = {});
  /// A name and its filters, applied to nothing: of filter and set blocks.
  Result<ExprPtr> filter_chain();
  /// What stands between operators: signs, a primary, what hangs on it.
  Result<ExprPtr> unary(bool with_filters);

 private:
  template <typename Node>
  Result<ExprPtr> make(Node node, int line, int children_depth);
  template <typename Next>
  Result<ExprPtr> binary(Next next,
                         std::initializer_list<std::pair<std::string_view, BinaryOp>> ops);

  Result<ExprPtr> logic_or();
  Result<ExprPtr> logic_and();
  Result<ExprPtr> logic_not();
  Result<ExprPtr> comparison();
  Result<ExprPtr> sum();
  Result<ExprPtr> concat();
  Result<ExprPtr> product();
  Result<ExprPtr> power();
  Result<ExprPtr> operand() { return unary(true); }
  Result<ExprPtr> primary();
  Result<ExprPtr> name();
  Result<ExprPtr> parenthesis();
  Result<ExprPtr> list();
  Result<ExprPtr> dict();
  Result<ExprPtr> postfix(ExprPtr left);
  Result<ExprPtr> filters_and_tests(ExprPtr left);
  Result<ExprPtr> attribute(ExprPtr left);
  Result<ExprPtr> subscript(ExprPtr left);
  Result<ExprPtr> call(ExprPtr left);
  Result<ExprPtr> filter(ExprPtr input);
  Result<ExprPtr> test(ExprPtr input);
  Result<std::string> dotted_name();
  /// Behind "("; up to and with ")".
  Result<CallArguments> arguments(int& depth);
  bool compare_operator(CompareOp& op);
  bool begins_test_argument() const;

  TokenStream& stream_;
};

}  // namespace pumice::jinja
