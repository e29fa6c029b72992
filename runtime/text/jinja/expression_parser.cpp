#include "text/jinja/expression_parser.hpp"

#include <algorithm>

namespace pumice::jinja {
namespace {

// As many as a macro has parameters: each is compared with those before it.
constexpr size_t kMaxNamedArguments = 255;

int depth_of(const ExprPtr& expression) { return expression == nullptr ? 0 : expression->depth; }

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& stream) : stream_(stream) {}

  // What stands between operators: signs, a primary, what hangs on it.
  Result<ExprPtr> operand() { return unary(true); }

  template <typename Node>
  Result<ExprPtr> make(Node node, int line, int children_depth) {
    PUMICE_TRY_STATUS(stream_.check_depth(children_depth + 1));
    return ExprPtr(new Expr{.node = std::move(node), .line = line, .depth = children_depth + 1});
  }

  Result<ExprPtr> expression() {
    const TokenStream::Level level(stream_);
    PUMICE_TRY_STATUS(stream_.check_depth());
    const int line = stream_.line();
    PUMICE_TRY(ExprPtr then, logic_or());
    while (stream_.skip_name("if")) {
      PUMICE_TRY(ExprPtr condition, logic_or());
      ExprPtr otherwise;
      if (stream_.skip_name("else")) {
        PUMICE_TRY(otherwise, expression());
      }
      const int depth = std::max({depth_of(then), depth_of(condition), depth_of(otherwise)});
      PUMICE_TRY(then,
                 make(ConditionalExpr{std::move(condition), std::move(then), std::move(otherwise)},
                      line, depth));
    }
    return then;
  }

  Result<ExprPtr> logic_or() { return logic("or", &ExpressionParser::logic_and); }
  Result<ExprPtr> logic_and() { return logic("and", &ExpressionParser::logic_not); }

  template <typename Next>
  Result<ExprPtr> logic(std::string_view name, Next next) {
    PUMICE_TRY(ExprPtr left, (this->*next)());
    while (stream_.is_name(name)) {
      const int line = stream_.take().line;
      PUMICE_TRY(ExprPtr right, (this->*next)());
      const int depth = std::max(depth_of(left), depth_of(right));
      PUMICE_TRY(left,
                 make(LogicExpr{name == "and", std::move(left), std::move(right)}, line, depth));
    }
    return left;
  }

  Result<ExprPtr> logic_not() {
    if (!stream_.is_name("not")) return comparison();
    const TokenStream::Level level(stream_);
    PUMICE_TRY_STATUS(stream_.check_depth());
    const int line = stream_.take().line;
    PUMICE_TRY(ExprPtr operand, logic_not());
    const int depth = depth_of(operand);
    return make(UnaryExpr{UnaryOp::kNot, std::move(operand)}, line, depth);
  }

  bool compare_operator(CompareOp& op) {
    constexpr std::pair<std::string_view, CompareOp> kOperators[] = {
        {"==", CompareOp::kEqual},  {"!=", CompareOp::kNotEqual},
        {"<", CompareOp::kLess},    {"<=", CompareOp::kLessEqual},
        {">", CompareOp::kGreater}, {">=", CompareOp::kGreaterEqual}};
    for (const auto& known : kOperators) {
      if (!stream_.skip_operator(known.first)) continue;
      op = known.second;
      return true;
    }
    op = CompareOp::kIn;
    if (stream_.skip_name("in")) return true;
    const bool not_in = stream_.is_name("not") && stream_.next().kind == TokenKind::kName &&
                        stream_.next().text == "in";
    if (!not_in) return false;
    stream_.take();
    stream_.take();
    op = CompareOp::kNotIn;
    return true;
  }

  Result<ExprPtr> comparison() {
    const int line = stream_.line();
    PUMICE_TRY(ExprPtr first, sum());
    CompareExpr compare;
    int depth = depth_of(first);
    for (CompareOp op; compare_operator(op);) {
      PUMICE_TRY(ExprPtr right, sum());
      depth = std::max(depth, depth_of(right));
      compare.rest.emplace_back(op, std::move(right));
    }
    if (compare.rest.empty()) return first;
    compare.first = std::move(first);
    return make(std::move(compare), line, depth);
  }

  template <typename Next>
  Result<ExprPtr> binary(Next next,
                         std::initializer_list<std::pair<std::string_view, BinaryOp>> ops) {
    PUMICE_TRY(ExprPtr left, (this->*next)());
    while (true) {
      const auto* op = std::ranges::find_if(
          ops, [&](const auto& known) { return stream_.is_operator(known.first); });
      if (op == ops.end()) return left;
      const int line = stream_.take().line;
      PUMICE_TRY(ExprPtr right, (this->*next)());
      const int depth = std::max(depth_of(left), depth_of(right));
      PUMICE_TRY(left,
                 make(BinaryExpr{op->second, std::move(left), std::move(right)}, line, depth));
    }
  }

  Result<ExprPtr> sum() {
    return binary(&ExpressionParser::concat, {{"+", BinaryOp::kAdd}, {"-", BinaryOp::kSubtract}});
  }

  Result<ExprPtr> concat() {
    const int line = stream_.line();
    PUMICE_TRY(ExprPtr first, product());
    if (!stream_.is_operator("~")) return first;
    ConcatExpr concat;
    int depth = depth_of(first);
    concat.parts.push_back(std::move(first));
    while (stream_.skip_operator("~")) {
      PUMICE_TRY(ExprPtr part, product());
      depth = std::max(depth, depth_of(part));
      concat.parts.push_back(std::move(part));
    }
    return make(std::move(concat), line, depth);
  }

  Result<ExprPtr> product() {
    return binary(&ExpressionParser::power, {{"*", BinaryOp::kMultiply},
                                             {"/", BinaryOp::kDivide},
                                             {"//", BinaryOp::kFloorDivide},
                                             {"%", BinaryOp::kModulo}});
  }

  Result<ExprPtr> power() { return binary(&ExpressionParser::operand, {{"**", BinaryOp::kPower}}); }

  Result<ExprPtr> unary(bool with_filters) {
    const TokenStream::Level level(stream_);
    PUMICE_TRY_STATUS(stream_.check_depth());
    const int line = stream_.line();
    ExprPtr result;
    if (stream_.is_operator("-") || stream_.is_operator("+")) {
      const UnaryOp op = stream_.take().text == "-" ? UnaryOp::kNegative : UnaryOp::kPositive;
      PUMICE_TRY(ExprPtr operand, unary(false));
      const int depth = depth_of(operand);
      PUMICE_TRY(result, make(UnaryExpr{op, std::move(operand)}, line, depth));
    } else {
      PUMICE_TRY(result, primary());
    }
    PUMICE_TRY(result, postfix(std::move(result)));
    if (!with_filters) return result;
    return filters_and_tests(std::move(result));
  }

  Result<ExprPtr> primary() {
    const Token& token = stream_.current();
    const int line = token.line;
    switch (token.kind) {
      case TokenKind::kName:
        return name();
      case TokenKind::kInteger:
        return make(ConstExpr{Value(stream_.take().integer)}, line, 0);
      case TokenKind::kFloat:
        return make(ConstExpr{Value(stream_.take().number)}, line, 0);
      case TokenKind::kString: {
        std::string joined;
        while (stream_.is(TokenKind::kString)) joined += stream_.take().text;
        auto text = std::make_unique<const std::string>(std::move(joined));
        const Value value = Value::borrowed(*text);
        return make(ConstExpr{value, std::move(text)}, line, 0);
      }
      default:
        if (stream_.skip_operator("(")) return parenthesis();
        if (stream_.skip_operator("[")) return list();
        if (stream_.skip_operator("{")) return dict();
        return stream_.unexpected("an expression");
    }
  }

  Result<ExprPtr> name() {
    Token token = stream_.take();
    const std::string& text = token.text;
    if (text == "true" || text == "True") return make(ConstExpr{Value(true)}, token.line, 0);
    if (text == "false" || text == "False") return make(ConstExpr{Value(false)}, token.line, 0);
    if (text == "none" || text == "None") return make(ConstExpr{Value()}, token.line, 0);
    stream_.uses.caller |= text == "caller";
    stream_.uses.varargs |= text == "varargs";
    stream_.uses.kwargs |= text == "kwargs";
    return make(NameExpr{std::move(token.text)}, token.line, 0);
  }

  Result<ExprPtr> tuple(bool conditional, std::string_view end = {}) {
    const int line = stream_.line();
    ListExpr tuple{.kind = ListKind::kTuple};
    int depth = 0;
    bool has_comma = false;
    while (true) {
      const bool ends = stream_.is(TokenKind::kVariableEnd) || stream_.is(TokenKind::kBlockEnd) ||
                        stream_.is_operator(")") || (!end.empty() && stream_.is_name(end));
      if (ends) break;
      PUMICE_TRY(ExprPtr item, conditional ? expression() : logic_or());
      depth = std::max(depth, depth_of(item));
      tuple.items.push_back(std::move(item));
      if (!stream_.skip_operator(",")) break;
      has_comma = true;
    }
    if (!has_comma && tuple.items.empty()) return stream_.unexpected("an expression");
    if (!has_comma) return std::move(tuple.items.front());
    return make(std::move(tuple), line, depth);
  }

  Result<ExprPtr> parenthesis() {
    const int line = stream_.line();
    if (stream_.skip_operator(")")) return make(ListExpr{ListKind::kTuple, {}}, line, 0);
    PUMICE_TRY(ExprPtr inside, tuple(true));
    PUMICE_TRY_STATUS(stream_.expect_operator(")"));
    return inside;
  }

  Result<ExprPtr> list() {
    const int line = stream_.line();
    ListExpr list{.kind = ListKind::kList};
    int depth = 0;
    while (!stream_.is_operator("]")) {
      if (!list.items.empty()) PUMICE_TRY_STATUS(stream_.expect_operator(","));
      if (stream_.is_operator("]")) break;
      PUMICE_TRY(ExprPtr item, expression());
      depth = std::max(depth, depth_of(item));
      list.items.push_back(std::move(item));
    }
    stream_.take();
    return make(std::move(list), line, depth);
  }

  Result<ExprPtr> dict() {
    const int line = stream_.line();
    DictExpr dict;
    int depth = 0;
    while (!stream_.is_operator("}")) {
      if (!dict.entries.empty()) PUMICE_TRY_STATUS(stream_.expect_operator(","));
      if (stream_.is_operator("}")) break;
      PUMICE_TRY(ExprPtr key, expression());
      PUMICE_TRY_STATUS(stream_.expect_operator(":"));
      PUMICE_TRY(ExprPtr value, expression());
      depth = std::max({depth, depth_of(key), depth_of(value)});
      dict.entries.emplace_back(std::move(key), std::move(value));
    }
    stream_.take();
    return make(std::move(dict), line, depth);
  }

  Result<ExprPtr> postfix(ExprPtr left) {
    while (true) {
      if (stream_.skip_operator(".")) {
        PUMICE_TRY(left, attribute(std::move(left)));
      } else if (stream_.skip_operator("[")) {
        PUMICE_TRY(left, subscript(std::move(left)));
      } else if (stream_.skip_operator("(")) {
        PUMICE_TRY(left, call(std::move(left)));
      } else {
        return left;
      }
    }
  }

  Result<ExprPtr> filters_and_tests(ExprPtr left) {
    while (true) {
      if (stream_.skip_operator("|")) {
        PUMICE_TRY(left, filter(std::move(left)));
      } else if (stream_.skip_name("is")) {
        PUMICE_TRY(left, test(std::move(left)));
      } else if (stream_.skip_operator("(")) {
        PUMICE_TRY(left, call(std::move(left)));
      } else {
        return left;
      }
    }
  }

  Result<ExprPtr> attribute(ExprPtr left) {
    const int line = stream_.line();
    const int depth = depth_of(left);
    if (stream_.is(TokenKind::kInteger)) {
      PUMICE_TRY(ExprPtr key, make(ConstExpr{Value(stream_.take().integer)}, line, 0));
      return make(ItemExpr{std::move(left), std::move(key)}, line, depth);
    }
    PUMICE_TRY(std::string name, stream_.expect_identifier());
    return make(AttributeExpr{std::move(left), std::move(name)}, line, depth);
  }

  Result<ExprPtr> subscript(ExprPtr left) {
    const int line = stream_.line();
    ExprPtr parts[3];
    int n_colons = 0;
    int depth = depth_of(left);
    bool has_key = false;
    while (!stream_.is_operator("]")) {
      if (n_colons < 2 && stream_.skip_operator(":")) {
        ++n_colons;
        has_key = false;
        continue;
      }
      if (has_key) return stream_.unexpected("']'");
      PUMICE_TRY(parts[n_colons], expression());
      depth = std::max(depth, depth_of(parts[n_colons]));
      has_key = true;
    }
    if (n_colons == 0 && !has_key) return stream_.unexpected("an expression");
    stream_.take();
    if (n_colons == 0) return make(ItemExpr{std::move(left), std::move(parts[0])}, line, depth);
    return make(
        SliceExpr{std::move(left), std::move(parts[0]), std::move(parts[1]), std::move(parts[2])},
        line, depth);
  }

  Result<CallArguments> arguments(int& depth) {
    CallArguments arguments;
    for (bool first = true; !stream_.is_operator(")"); first = false) {
      if (!first) PUMICE_TRY_STATUS(stream_.expect_operator(","));
      if (stream_.is_operator(")")) break;
      const bool stars = stream_.skip_operator("*");
      const bool two_stars = !stars && stream_.skip_operator("**");
      std::string name;
      const bool named = !stars && !two_stars && stream_.is(TokenKind::kName) &&
                         stream_.next().kind == TokenKind::kOperator && stream_.next().text == "=";
      if (named) {
        if (arguments.named.size() == kMaxNamedArguments) {
          return bad_template(stream_.line(), "more than {} named arguments", kMaxNamedArguments);
        }
        name = stream_.take().text;
        if (std::ranges::any_of(arguments.named,
                                [&](const auto& other) { return other.first == name; })) {
          return bad_template(stream_.line(), "the argument '{}' is repeated", printable(name, 40));
        }
        stream_.take();
      }
      const bool out_of_order =
          (!named && !stars && !two_stars && (!arguments.named.empty() || arguments.unpacked)) ||
          (stars && arguments.unpacked) || arguments.unpacked_named;
      if (out_of_order) return stream_.unexpected("no more arguments of this kind");
      PUMICE_TRY(ExprPtr value, expression());
      depth = std::max(depth, depth_of(value));
      if (stars) {
        arguments.unpacked = std::move(value);
      } else if (two_stars) {
        arguments.unpacked_named = std::move(value);
      } else if (named) {
        arguments.named.emplace_back(std::move(name), std::move(value));
      } else {
        arguments.positional.push_back(std::move(value));
      }
    }
    stream_.take();
    return arguments;
  }

  Result<ExprPtr> call(ExprPtr left) {
    const int line = stream_.line();
    int depth = depth_of(left);
    PUMICE_TRY(CallArguments given, arguments(depth));
    return make(CallExpr{std::move(left), std::move(given)}, line, depth);
  }

  Result<std::string> dotted_name() {
    PUMICE_TRY(std::string name, stream_.expect_identifier());
    while (stream_.skip_operator(".")) {
      PUMICE_TRY(const std::string more, stream_.expect_identifier());
      name += "." + more;
    }
    return name;
  }

  Result<ExprPtr> filter(ExprPtr input) {
    const int line = stream_.line();
    int depth = depth_of(input);
    PUMICE_TRY(std::string name, dotted_name());
    CallArguments given;
    if (stream_.skip_operator("(")) {
      PUMICE_TRY(given, arguments(depth));
    }
    return make(FilterExpr{std::move(input), std::move(name), std::move(given)}, line, depth);
  }

  Result<ExprPtr> filter_chain() {
    PUMICE_TRY(ExprPtr chain, filter(nullptr));
    while (stream_.skip_operator("|")) {
      PUMICE_TRY(chain, filter(std::move(chain)));
    }
    return chain;
  }

  bool begins_test_argument() const {
    switch (stream_.current().kind) {
      case TokenKind::kName:
        return !stream_.is_any_name({"else", "or", "and"});
      case TokenKind::kString:
      case TokenKind::kInteger:
      case TokenKind::kFloat:
        return true;
      default:
        return stream_.is_operator("[") || stream_.is_operator("{");
    }
  }

  Result<ExprPtr> test(ExprPtr input) {
    const int line = stream_.line();
    const bool negated = stream_.skip_name("not");
    int depth = depth_of(input);
    PUMICE_TRY(std::string name, dotted_name());
    CallArguments given;
    if (stream_.skip_operator("(")) {
      PUMICE_TRY(given, arguments(depth));
    } else if (begins_test_argument()) {
      if (stream_.is_name("is"))
        return stream_.unexpected("no second test (they cannot be chained)");
      PUMICE_TRY(ExprPtr argument, primary());
      PUMICE_TRY(argument, postfix(std::move(argument)));
      depth = std::max(depth, depth_of(argument));
      given.positional.push_back(std::move(argument));
    }
    PUMICE_TRY(ExprPtr result,
               make(TestExpr{std::move(input), std::move(name), std::move(given)}, line, depth));
    if (!negated) return result;
    depth = depth_of(result);
    return make(UnaryExpr{UnaryOp::kNot, std::move(result)}, line, depth);
  }

 private:
  TokenStream& stream_;
};

}  // namespace

Result<ExprPtr> parse_expression(TokenStream& stream) {
  return ExpressionParser(stream).expression();
}

Result<ExprPtr> parse_tuple(TokenStream& stream, bool conditional, std::string_view end) {
  return ExpressionParser(stream).tuple(conditional, end);
}

Result<ExprPtr> parse_filter_chain(TokenStream& stream) {
  return ExpressionParser(stream).filter_chain();
}

}  // namespace pumice::jinja
