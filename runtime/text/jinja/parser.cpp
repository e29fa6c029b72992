#include "text/jinja/parser.hpp"

#include <algorithm>

#include "text/jinja/expression_parser.hpp"
#include "text/jinja/token_stream.hpp"

namespace pumice::jinja {
namespace {

constexpr size_t kMaxParameters = 255;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : stream_(std::move(tokens)) {}

  Result<Template> run() {
    Template result;
    PUMICE_TRY(result.body, body({}));
    return result;
  }

 private:
  using Names = std::initializer_list<std::string_view>;

  /// Statements up to a tag named by `ends`, whose name is then current; without any, all.
  Result<Body> body(Names ends) {
    const TokenStream::Level level(stream_);
    PUMICE_TRY_STATUS(stream_.check_depth());
    Body statements;
    while (!stream_.is(TokenKind::kEnd)) {
      const int line = stream_.line();
      if (stream_.is(TokenKind::kData)) {
        add(statements, TextStatement{stream_.take().text}, line);
      } else if (stream_.is(TokenKind::kVariableBegin)) {
        stream_.take();
        PUMICE_TRY(ExprPtr value, parse_tuple(stream_, true));
        PUMICE_TRY_STATUS(stream_.expect(TokenKind::kVariableEnd, "the end of the tag '}}'"));
        add(statements, PrintStatement{std::move(value)}, line);
      } else {
        stream_.take();
        if (stream_.is_any_name(ends)) return statements;
        PUMICE_TRY_STATUS(statement(statements));
      }
    }
    if (ends.size() > 0) return stream_.unexpected(fmt::format("'{}'", *(ends.end() - 1)));
    return statements;
  }

  /// A body, its end tag `end` and the end of that.
  Result<Body> whole_body(std::string_view end) {
    PUMICE_TRY(Body statements, body({end}));
    stream_.take();
    PUMICE_TRY_STATUS(block_end());
    return statements;
  }

  Status block_end() { return stream_.expect(TokenKind::kBlockEnd, "the end of the tag '%}'"); }

  template <typename Node>
  static void add(Body& body, Node node, int line) {
    body.push_back(std::unique_ptr<const Statement>(new Statement{std::move(node), line}));
  }

  Status statement(Body& body) {
    const int line = stream_.line();
    PUMICE_TRY(const std::string name, stream_.expect_identifier());
    if (name == "if") return if_statement(body, line);
    if (name == "for") return for_statement(body, line);
    if (name == "set") return set_statement(body, line);
    if (name == "macro") return macro(body, line);
    if (name == "call") return call(body, line);
    if (name == "filter") return filter(body, line);
    if (name == "with") return with(body, line);
    if (name == "break" || name == "continue") return loop_control(body, name == "break", line);
    if (name == "generation") return generation(body);
    constexpr std::string_view kLoading[] = {"include", "import", "from", "extends", "block"};
    if (std::ranges::find(kLoading, name) != std::end(kLoading)) {
      return bad_template(
          line, "'{}' needs other templates, and a chat template has no access to any", name);
    }
    return bad_template(line, "unknown tag '{}'", printable(name, 40));
  }

  Status if_statement(Body& into, int line) {
    IfStatement result;
    do {
      PUMICE_TRY(ExprPtr condition, parse_tuple(stream_, false));
      PUMICE_TRY_STATUS(block_end());
      PUMICE_TRY(Body then, body({"elif", "else", "endif"}));
      result.branches.emplace_back(std::move(condition), std::move(then));
    } while (stream_.skip_name("elif"));
    if (stream_.skip_name("else")) {
      PUMICE_TRY_STATUS(block_end());
      PUMICE_TRY(result.otherwise, body({"endif"}));
    }
    stream_.take();
    add(into, std::move(result), line);
    return block_end();
  }

  Status for_statement(Body& into, int line) {
    ForStatement result;
    PUMICE_TRY(result.target, target(true));
    if (!stream_.skip_name("in")) return stream_.unexpected("'in'");
    PUMICE_TRY(result.items, parse_tuple(stream_, false, "recursive"));
    if (stream_.skip_name("if")) {
      PUMICE_TRY(result.condition, parse_expression(stream_));
    }
    result.recursive = stream_.skip_name("recursive");
    PUMICE_TRY_STATUS(block_end());
    ++n_loops_;
    Result<Body> inside = body({"else", "endfor"});
    --n_loops_;
    PUMICE_TRY(result.body, std::move(inside));
    if (stream_.skip_name("else")) {
      PUMICE_TRY_STATUS(block_end());
      PUMICE_TRY(result.otherwise, body({"endfor"}));
    }
    stream_.take();
    add(into, std::move(result), line);
    return block_end();
  }

  Result<Target> target(bool tuple) {
    const TokenStream::Level level(stream_);
    PUMICE_TRY_STATUS(stream_.check_depth());
    PUMICE_TRY(Target first, single_target());
    if (!tuple || !stream_.is_operator(",")) return first;
    Target result{.is_tuple = true};
    result.items.push_back(std::move(first));
    while (stream_.skip_operator(",")) {
      if (!stream_.is(TokenKind::kName) && !stream_.is_operator("(")) break;
      if (stream_.is_name("in")) break;
      PUMICE_TRY(Target next, single_target());
      result.items.push_back(std::move(next));
    }
    return result;
  }

  Result<Target> single_target() {
    if (stream_.skip_operator("(")) {
      PUMICE_TRY(Target inside, target(true));
      PUMICE_TRY_STATUS(stream_.expect_operator(")"));
      return inside;
    }
    const int line = stream_.line();
    Target result;
    PUMICE_TRY(result.name, stream_.expect_identifier());
    constexpr std::string_view kConstants[] = {"true", "True", "false", "False", "none", "None"};
    if (std::ranges::find(kConstants, result.name) != std::end(kConstants)) {
      return bad_template(line, "cannot assign to '{}'", result.name);
    }
    return result;
  }

  Result<Target> set_target() {
    if (stream_.is(TokenKind::kName) && stream_.next().kind == TokenKind::kOperator &&
        stream_.next().text == ".") {
      Target result{.name = stream_.take().text};
      stream_.take();
      PUMICE_TRY(result.attribute, stream_.expect_identifier());
      return result;
    }
    return target(true);
  }

  Status set_statement(Body& into, int line) {
    PUMICE_TRY(Target where, set_target());
    if (stream_.skip_operator("=")) {
      PUMICE_TRY(ExprPtr value, parse_tuple(stream_, true));
      add(into, SetStatement{std::move(where), std::move(value)}, line);
      return block_end();
    }
    SetBlockStatement result{.target = std::move(where)};
    if (stream_.skip_operator("|")) {
      PUMICE_TRY(result.filter, parse_filter_chain(stream_));
    }
    PUMICE_TRY_STATUS(block_end());
    PUMICE_TRY(result.body, whole_body("endset"));
    add(into, std::move(result), line);
    return {};
  }

  /// "(a, b=1)"
  Status signature(Signature& result) {
    PUMICE_TRY_STATUS(stream_.expect_operator("("));
    for (bool first = true; !stream_.is_operator(")"); first = false) {
      if (!first) PUMICE_TRY_STATUS(stream_.expect_operator(","));
      PUMICE_TRY(Target parameter, single_target());
      if (parameter.is_tuple) return stream_.unexpected("a parameter's name before");
      if (result.parameters.size() == kMaxParameters) {
        return bad_template(stream_.line(), "more than {} parameters", kMaxParameters);
      }
      result.parameters.push_back(std::move(parameter.name));
      if (stream_.skip_operator("=")) {
        PUMICE_TRY(ExprPtr value, parse_expression(stream_));
        result.defaults.push_back(std::move(value));
      } else if (!result.defaults.empty()) {
        return bad_template(stream_.line(), "a parameter without default follows one with");
      }
    }
    stream_.take();
    return {};
  }

  /// The body of a macro or call, whose `result` learns which names it uses. Loops outside of it
  /// cannot be left from inside.
  Result<Body> macro_body(Signature& result, std::string_view end) {
    const TokenStream::Uses outer = std::exchange(stream_.uses, {});
    const int n_loops = std::exchange(n_loops_, 0);
    Result<Body> statements = whole_body(end);
    n_loops_ = n_loops;
    const TokenStream::Uses& uses = stream_.uses;
    result.uses_caller = uses.caller;
    result.uses_varargs = uses.varargs;
    result.uses_kwargs = uses.kwargs;
    stream_.uses = {outer.caller || uses.caller, outer.varargs || uses.varargs,
                    outer.kwargs || uses.kwargs};
    return statements;
  }

  Status macro(Body& into, int line) {
    MacroStatement result;
    PUMICE_TRY(Target name, single_target());
    if (name.is_tuple) return stream_.unexpected("a macro's name before");
    result.signature.name = std::move(name.name);
    PUMICE_TRY_STATUS(signature(result.signature));
    PUMICE_TRY_STATUS(block_end());
    PUMICE_TRY(result.body, macro_body(result.signature, "endmacro"));
    add(into, std::move(result), line);
    return {};
  }

  Status call(Body& into, int line) {
    CallStatement result;
    result.caller.name = "caller";
    if (stream_.is_operator("(")) PUMICE_TRY_STATUS(signature(result.caller));
    PUMICE_TRY(result.call, parse_expression(stream_));
    if (!std::holds_alternative<CallExpr>(result.call->node)) {
      return bad_template(line, "'call' needs a call");
    }
    PUMICE_TRY_STATUS(block_end());
    PUMICE_TRY(result.body, macro_body(result.caller, "endcall"));
    add(into, std::move(result), line);
    return {};
  }

  Status filter(Body& into, int line) {
    FilterStatement result;
    PUMICE_TRY(result.filter, parse_filter_chain(stream_));
    PUMICE_TRY_STATUS(block_end());
    PUMICE_TRY(result.body, whole_body("endfilter"));
    add(into, std::move(result), line);
    return {};
  }

  Status with(Body& into, int line) {
    WithStatement result;
    while (!stream_.is(TokenKind::kBlockEnd)) {
      if (!result.values.empty()) PUMICE_TRY_STATUS(stream_.expect_operator(","));
      PUMICE_TRY(Target where, target(false));
      PUMICE_TRY_STATUS(stream_.expect_operator("="));
      PUMICE_TRY(ExprPtr value, parse_expression(stream_));
      result.values.emplace_back(std::move(where), std::move(value));
    }
    stream_.take();
    PUMICE_TRY(result.body, whole_body("endwith"));
    add(into, std::move(result), line);
    return {};
  }

  Status loop_control(Body& into, bool is_break, int line) {
    if (n_loops_ == 0) {
      return bad_template(line, "'{}' outside of a loop", is_break ? "break" : "continue");
    }
    add(into, is_break ? LoopControl::kBreak : LoopControl::kContinue, line);
    return block_end();
  }

  /// Marks what the assistant said, for training: the same text, with a scope of its own.
  Status generation(Body& into) {
    const int line = stream_.line();
    PUMICE_TRY_STATUS(block_end());
    PUMICE_TRY(Body statements, whole_body("endgeneration"));
    add(into, WithStatement{.values = {}, .body = std::move(statements)}, line);
    return {};
  }

  TokenStream stream_;
  int n_loops_ = 0;
};

}  // namespace

Result<Template> parse_template(std::string_view source) {
  PUMICE_TRY(std::vector<Token> tokens, tokenize(source));
  return Parser(std::move(tokens)).run();
}

}  // namespace pumice::jinja
