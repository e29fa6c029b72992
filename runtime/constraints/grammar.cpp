#include "constraints/grammar.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "base/check.hpp"

namespace pumice {
namespace {

constexpr Symbol kUndefined{kUnbounded};

}  // namespace

Symbol GrammarBuilder::add(Node node, std::span<const Symbol> operands) {
  expressions_.fuel().spend(8 + operands.size());
  if (nodes_.size() >= kMaxSymbols) throw OutOfFuel{};
  if (!operands.empty()) {
    node.first = static_cast<uint32_t>(operands_.size());
    node.count = static_cast<uint32_t>(operands.size());
  }
  for (const Symbol operand : operands) {
    PUMICE_CHECK(static_cast<uint32_t>(operand) < nodes_.size(), "a symbol of another builder");
    operands_.push_back(operand);
  }
  nodes_.push_back(node);
  return Symbol{static_cast<uint32_t>(nodes_.size() - 1)};
}

Symbol GrammarBuilder::lexeme(Expression expression) {
  return add({.kind = Kind::kLexeme, .first = static_cast<uint32_t>(expression)});
}

Symbol GrammarBuilder::literal(std::string_view bytes) {
  return lexeme(expressions_.literal(bytes));
}

Symbol GrammarBuilder::tokens(std::vector<TokenId> ids, bool negated) {
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  TokenTerminal terminal{std::move(ids), negated};
  const auto found = std::ranges::find(tokens_, terminal);
  const auto index = static_cast<uint32_t>(found - tokens_.begin());
  expressions_.fuel().spend(8 + terminal.ids.size() + tokens_.size());
  if (found == tokens_.end()) tokens_.push_back(std::move(terminal));
  return add({.kind = Kind::kTokens, .first = index});
}

Symbol GrammarBuilder::sequence(std::span<const Symbol> parts) {
  return add({.kind = Kind::kSequence}, parts);
}

Symbol GrammarBuilder::choice(std::span<const Symbol> alternatives) {
  return add({.kind = Kind::kChoice}, alternatives);
}

Symbol GrammarBuilder::repeat(Symbol symbol, uint32_t min, uint32_t max) {
  return add({.kind = Kind::kRepeat, .min = min, .max = max}, {&symbol, 1});
}

Symbol GrammarBuilder::declare(std::string name) {
  declared_.push_back({.name = std::move(name), .body = kUndefined});
  const auto index = static_cast<uint32_t>(declared_.size() - 1);
  return add({.kind = Kind::kDeclared, .first = index});
}

void GrammarBuilder::define(Symbol declared, Symbol body) {
  const auto index = static_cast<uint32_t>(declared);
  PUMICE_CHECK(index < nodes_.size() && nodes_[index].kind == Kind::kDeclared,
               "define() of what was not declared");
  Declared& definition = declared_[nodes_[index].first];
  definition.twice |= definition.body != kUndefined;
  definition.body = body;
}

/// Symbols to rules. What is regular stays an expression as long as it goes, so that a parser sees as few symbols as
/// there can be; only what recurs (or has tokens in it) becomes a rule.
class GrammarCompiler {
 public:
  explicit GrammarCompiler(GrammarBuilder& builder)
      : builder_(builder), set_(builder.expressions_), places_(builder.nodes_.size()) {
    grammar_.tokens = std::move(builder.tokens_);
  }

  Result<Grammar> compile(Symbol start) {
    for (const GrammarBuilder::Declared& declared : builder_.declared_) {
      if (declared.twice)
        return make_error(ErrorCode::kInvalidArgument, "{} is defined twice", declared.name);
    }
    if (Status folded = fold_all(start); !folded.ok()) return folded.error();
    grammar_.start = new_rule();
    add_production(grammar_.start, {&place(start).made, 1});
    drop_unproductive();
    find_nullable();
    grammar_.expressions = std::move(set_);
    return std::move(grammar_);
  }

 private:
  using Kind = GrammarBuilder::Kind;
  using Node = GrammarBuilder::Node;
  using Term = Grammar::Term;
  /// What a symbol became: an expression, or a term.
  struct Made {
    std::optional<Expression> expression;
    Term term{};
  };
  struct Place {
    enum { kNew, kOpen, kDone } progress = kNew;
    bool recursive = false;  // `made` is a rule already, while it is open
    Made made;
  };
  struct Visit {
    Symbol symbol;
    uint32_t next_operand = 0;
  };

  Place& place(Symbol symbol) { return places_[static_cast<uint32_t>(symbol)]; }
  const Node& node(Symbol symbol) const { return builder_.nodes_[static_cast<uint32_t>(symbol)]; }
  std::span<const Symbol> operands(Symbol symbol) const {
    const Node& at = node(symbol);
    if (at.kind == Kind::kDeclared) return {&builder_.declared_[at.first].body, 1};
    if (at.kind == Kind::kLexeme || at.kind == Kind::kTokens) return {};
    return std::span(builder_.operands_).subspan(at.first, at.count);
  }

  /// Depth first with a stack of its own: symbols may lie in each other without end.
  Status fold_all(Symbol start) {
    std::vector<Visit> open{{start}};
    place(start).progress = Place::kOpen;
    while (!open.empty()) {
      const Symbol symbol = open.back().symbol;
      const std::span<const Symbol> below = operands(symbol);
      if (open.back().next_operand == below.size()) {
        fold(symbol);
        open.pop_back();
        continue;
      }
      const Symbol next = below[open.back().next_operand++];
      if (next == kUndefined) {
        return make_error(ErrorCode::kInvalidArgument, "{} is used but not defined",
                          builder_.declared_[node(symbol).first].name);
      }
      Place& at = place(next);
      set_.fuel().spend(4);
      if (at.progress == Place::kOpen && node(next).kind == Kind::kDeclared && !at.recursive) {
        at.recursive = true;
        at.made.term = {Grammar::Kind::kRule, new_rule()};
      }
      if (at.progress != Place::kNew) continue;
      at.progress = Place::kOpen;
      open.push_back({next});
    }
    return {};
  }

  void fold(Symbol symbol) {
    const Node& at = node(symbol);
    Place& to = place(symbol);
    std::vector<Made> parts;
    for (const Symbol operand : operands(symbol)) parts.push_back(place(operand).made);
    set_.fuel().spend(4 + parts.size());
    switch (at.kind) {
      case Kind::kLexeme: {
        const Expression expression{at.first};
        to.made = {.expression = set_.is_nothing(expression) ? set_.nothing() : expression};
        break;
      }
      case Kind::kTokens:
        to.made = {.term = {Grammar::Kind::kTokens, at.first}};
        break;
      case Kind::kSequence:
        to.made = sequence(parts);
        break;
      case Kind::kChoice:
        to.made = choice(parts);
        break;
      case Kind::kRepeat:
        to.made = repeat(parts[0], at.min, at.max);
        break;
      case Kind::kDeclared:
        if (to.recursive) {
          add_production(to.made.term.index, parts);
        } else {
          to.made = parts[0];
        }
        break;
    }
    to.progress = Place::kDone;
  }

  Made sequence(std::span<const Made> parts) {
    std::vector<Made> joined;
    for (size_t i = 0; i < parts.size();) {
      std::vector<Expression> run;
      for (; i < parts.size() && parts[i].expression; ++i) run.push_back(*parts[i].expression);
      const Expression lexeme = set_.concat(run);
      if (lexeme == set_.nothing()) return {.expression = lexeme};
      if (lexeme != set_.empty()) joined.push_back({.expression = lexeme});
      if (i < parts.size()) joined.push_back(parts[i++]);
    }
    if (joined.empty()) return {.expression = set_.empty()};
    if (joined.size() == 1) return joined[0];
    const uint32_t rule = new_rule();
    add_production(rule, joined);
    return {.term = {Grammar::Kind::kRule, rule}};
  }

  Made choice(std::span<const Made> parts) {
    std::vector<Expression> lexemes;
    std::vector<Made> others;
    for (const Made& part : parts) {
      if (part.expression) {
        lexemes.push_back(*part.expression);
      } else {
        others.push_back(part);
      }
    }
    const Made lexeme{.expression = set_.any_of(lexemes)};
    if (others.empty()) return lexeme;
    if (lexeme.expression != set_.nothing()) others.push_back(lexeme);
    if (others.size() == 1) return others[0];
    const uint32_t rule = new_rule();
    for (const Made& other : others) add_production(rule, {&other, 1});
    return {.term = {Grammar::Kind::kRule, rule}};
  }

  Made repeat(const Made& body, uint32_t min, uint32_t max) {
    if (body.expression) return {.expression = set_.repeat(*body.expression, min, max)};
    if (min > max) return {.expression = set_.nothing()};
    if (max == 0) return {.expression = set_.empty()};
    if (min == 1 && max == 1) return body;
    grammar_.repeats.push_back({body.term, min, max});
    return {.term = {Grammar::Kind::kRepeat, static_cast<uint32_t>(grammar_.repeats.size() - 1)}};
  }

  uint32_t new_rule() {
    grammar_.rules.emplace_back();
    return static_cast<uint32_t>(grammar_.rules.size() - 1);
  }

  void add_production(uint32_t rule, std::span<const Made> parts) {
    const auto begin = static_cast<uint32_t>(grammar_.terms.size());
    set_.fuel().spend(2 + 2 * parts.size());
    for (const Made& part : parts) {
      if (part.expression == set_.nothing()) {
        grammar_.terms.resize(begin);
        return;
      }
      if (part.expression == set_.empty()) continue;
      grammar_.terms.push_back(part.expression ? lexeme_term(*part.expression) : part.term);
    }
    grammar_.rules[rule].productions.push_back(
        {begin, static_cast<uint32_t>(grammar_.terms.size())});
  }

  Term lexeme_term(Expression expression) {
    const auto [at, is_new] =
        lexemes_.emplace(expression, static_cast<uint32_t>(grammar_.lexemes.size()));
    if (is_new) grammar_.lexemes.push_back(expression);
    return {Grammar::Kind::kLexeme, at->second};
  }

  std::span<const Term> terms(const Grammar::Production& production) const {
    return std::span(grammar_.terms).subspan(production.begin, production.end - production.begin);
  }

  /// Sets `known` of each rule of which some production has only terms of which `holds` says so, until no more come.
  template <typename Holds>
  std::vector<bool> least_fixpoint(Holds&& holds) {
    std::vector<bool> known(grammar_.rules.size());
    for (bool changed = true; changed;) {
      changed = false;
      set_.fuel().spend(grammar_.rules.size() + grammar_.terms.size());
      for (size_t i = 0; i < known.size(); ++i) {
        if (known[i]) continue;
        known[i] = std::ranges::any_of(
            grammar_.rules[i].productions, [&](const Grammar::Production& production) {
              return std::ranges::all_of(terms(production),
                                         [&](const Term& term) { return holds(term, known); });
            });
        changed |= known[i];
      }
    }
    return known;
  }

  /// Of a term that repeats (and of one that repeats a repetition, …): what is repeated at last, unless it may be
  /// repeated not at all.
  std::optional<Term> needed(Term term) const {
    while (term.kind == Grammar::Kind::kRepeat) {
      const Grammar::Repeat& repeat = grammar_.repeats[term.index];
      if (repeat.min == 0) return std::nullopt;
      term = repeat.body;
    }
    return term;
  }

  void drop_unproductive() {
    const auto derives = [this](const Term& term, const std::vector<bool>& known) {
      const std::optional<Term> need = needed(term);
      if (!need || need->kind == Grammar::Kind::kLexeme) return true;
      if (need->kind == Grammar::Kind::kRule) return bool{known[need->index]};
      return grammar_.tokens[need->index].negated || !grammar_.tokens[need->index].ids.empty();
    };
    const std::vector<bool> productive = least_fixpoint(derives);
    for (Grammar::Rule& rule : grammar_.rules) {
      std::erase_if(rule.productions, [&](const Grammar::Production& production) {
        return !std::ranges::all_of(terms(production),
                                    [&](const Term& term) { return derives(term, productive); });
      });
    }
    for (Grammar::Repeat& repeat : grammar_.repeats) {
      if (!derives(repeat.body, productive)) repeat.max = 0;
    }
  }

  void find_nullable() {
    const auto empty = [this](const Term& term, const std::vector<bool>& known) {
      const std::optional<Term> need = needed(term);
      if (!need) return true;
      if (need->kind == Grammar::Kind::kRule) return bool{known[need->index]};
      return need->kind == Grammar::Kind::kLexeme && set_.nullable(grammar_.lexemes[need->index]);
    };
    const std::vector<bool> nullable = least_fixpoint(empty);
    for (size_t i = 0; i < nullable.size(); ++i) grammar_.rules[i].nullable = nullable[i];
    for (Grammar::Repeat& repeat : grammar_.repeats) {
      if (empty(repeat.body, nullable)) repeat.min = 0;
    }
  }

  GrammarBuilder& builder_;
  ExpressionSet& set_;
  std::vector<Place> places_;
  std::map<Expression, uint32_t> lexemes_;
  Grammar grammar_;
};

Result<Grammar> GrammarBuilder::build(Symbol start) && {
  return within_fuel("the grammar", [&] { return GrammarCompiler(*this).compile(start); });
}

}  // namespace pumice
