// Context-free grammars over lexemes (expressions over bytes) and tokens. The language is exact: where a lexeme may end
// and also go on, both are followed; there is no longest match.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "constraints/expression.hpp"
#include "text/vocabulary.hpp"

namespace pumice {

/// A symbol of the GrammarBuilder that made it.
enum class Symbol : uint32_t {};

/// Tokens as a terminal: one of `ids`, or one of those that have text and are not in `ids`.
struct TokenTerminal {
  std::vector<TokenId> ids;  ///< sorted, each once
  bool negated = false;

  bool operator==(const TokenTerminal&) const = default;
};

/// What GrammarBuilder::build makes: immutable plain data, ready for the parser.
struct Grammar {
  enum class Kind : uint32_t { kLexeme, kTokens, kRule, kRepeat };
  /// kLexeme: lexemes[index]. kTokens: tokens[index]. kRule: rules[index]. kRepeat: repeats[index].
  struct Term {
    Kind kind;
    uint32_t index;
    auto operator<=>(const Term&) const = default;
  };
  struct Repeat {
    Term body;
    uint32_t min;
    uint32_t max;
    auto operator<=>(const Repeat&) const = default;
  };
  /// A right side is terms [begin, end) of `terms`.
  struct Production {
    uint32_t begin;
    uint32_t end;
  };
  struct Rule {
    std::vector<Production> productions;
    bool nullable = false;
  };

  ExpressionSet expressions;
  std::vector<Expression> lexemes;  ///< none is nothing()
  std::vector<TokenTerminal> tokens;
  std::vector<Rule> rules;      ///< one without productions derives nothing and is in no production
  std::vector<Repeat> repeats;  ///< min is 0 where the body may be empty
  std::vector<Term> terms;
  uint32_t start = 0;  ///< a rule; without productions if the grammar derives nothing
};

/// Symbols are made of symbols; nothing is checked before build(), so that calls compose. One thread at a time. Calls
/// may throw OutOfFuel as expressions do.
class GrammarBuilder {
 public:
  static constexpr uint32_t kMaxSymbols = 2'000'000;

  explicit GrammarBuilder(uint64_t fuel = ExpressionSet::kDefaultFuel) : expressions_(fuel) {}

  /// Where the expressions of this grammar's lexemes are made.
  ExpressionSet& expressions() { return expressions_; }

  Symbol lexeme(Expression expression);
  /// lexeme(expressions().literal(bytes))
  Symbol literal(std::string_view bytes);
  Symbol tokens(std::vector<TokenId> ids, bool negated = false);
  Symbol empty() { return sequence({}); }
  Symbol sequence(std::span<const Symbol> parts);
  Symbol sequence(std::initializer_list<Symbol> parts) {
    return sequence(std::span(parts.begin(), parts.size()));
  }
  /// Without alternatives it derives nothing.
  Symbol choice(std::span<const Symbol> alternatives);
  Symbol choice(std::initializer_list<Symbol> parts) {
    return choice(std::span(parts.begin(), parts.size()));
  }
  Symbol optional(Symbol symbol) { return repeat(symbol, 0, 1); }
  /// From `min` to `max` (or kUnbounded) times; one rule, whatever the numbers.
  Symbol repeat(Symbol symbol, uint32_t min, uint32_t max = kUnbounded);
  /// A symbol that may stand in others before (and inside) its definition. `name` is for messages.
  Symbol declare(std::string name);
  void define(Symbol declared, Symbol body);

  /// The grammar of `start`, everything regular in it made one lexeme. Errors: kInvalidArgument for a symbol that is
  /// used but not defined (or defined twice), kDoesNotFit for too many symbols or out of fuel.
  Result<Grammar> build(Symbol start) &&;

 private:
  friend class GrammarCompiler;
  enum class Kind : uint8_t { kLexeme, kTokens, kSequence, kChoice, kRepeat, kDeclared };
  struct Node {
    Kind kind;
    uint32_t first =
        0;  // kLexeme: expression; kTokens, kDeclared: index; else the first of its operands
    uint32_t count = 0;  // of operands
    uint32_t min = 0, max = 0;
  };
  struct Declared {
    std::string name;
    Symbol body{kUnbounded};  // kUnbounded: not defined yet
    bool twice = false;
  };
  Symbol add(Node node, std::span<const Symbol> operands = {});

  ExpressionSet expressions_;
  std::vector<Node> nodes_;
  std::vector<Symbol> operands_;
  std::vector<TokenTerminal> tokens_;
  std::vector<Declared> declared_;
};

}  // namespace pumice
