#include "constraints/parser.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace pumice {
namespace {

/// Pairs of words, sorted and each once.
void normalise_pairs(std::vector<uint32_t>& words) {
  std::vector<std::pair<uint32_t, uint32_t>> pairs;
  for (size_t i = 0; i < words.size(); i += 2) pairs.emplace_back(words[i], words[i + 1]);
  std::ranges::sort(pairs);
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  words.clear();
  for (const auto& [first, second] : pairs) words.insert(words.end(), {first, second});
}

ExpressionSet with_fuel(ExpressionSet set, uint64_t fuel) {
  set.fuel().refill(fuel);
  return set;
}

}  // namespace

Parser::Parser(const Grammar& grammar, uint64_t fuel)
    : grammar_(grammar),
      expressions_(with_fuel(grammar.expressions, fuel)),
      lexer_(expressions_, grammar.lexemes),
      n_classes_(lexer_.n_classes()),
      rule_dots_(grammar.rules.size()) {
  for (uint32_t byte = 0; byte < 256; ++byte)
    classes_[byte] = lexer_.byte_class(static_cast<uint8_t>(byte));
  for (uint32_t rule = 0; rule < grammar.rules.size(); ++rule) {
    for (const Grammar::Production& production : grammar.rules[rule].productions) {
      rule_dots_[rule].push_back(static_cast<uint32_t>(dots_.size()));
      for (uint32_t i = production.begin; i < production.end; ++i)
        dots_.push_back({false, grammar.terms[i], rule});
      dots_.push_back({true, {}, rule});
    }
  }
  intern_state({});  // kDead
  predict({Grammar::Kind::kRule, grammar.start});
  if (const std::optional<uint32_t> row = close_row()) start_ = intern_state({*row, kFresh});
}

bool Parser::nullable(Term term) const {
  switch (term.kind) {
    case Grammar::Kind::kLexeme:
      return expressions_.nullable(grammar_.lexemes[term.index]);
    case Grammar::Kind::kTokens:
      return false;
    case Grammar::Kind::kRule:
      return grammar_.rules[term.index].nullable;
    case Grammar::Kind::kRepeat:
      return grammar_.repeats[term.index].min == 0;
  }
  return false;
}

void Parser::add(const Item& item) {
  expressions_.fuel().spend(4);
  items_.intern({{item.dot, item.count, item.origin}});
}

/// What waited in `row` has come.
void Parser::advance(const Waiting& waiting, uint32_t row) {
  Item item = waiting.item;
  if (item.origin == kSelf) item.origin = row;
  if (item.dot < dots_.size()) {
    ++item.dot;
  } else {
    const Grammar::Repeat& repeat = grammar_.repeats[item.dot - dots_.size()];
    // Without a bound, counts beyond the least number are all one.
    item.count = std::min(item.count + 1, repeat.max == kUnbounded ? repeat.min : repeat.max);
  }
  add(item);
}

void Parser::complete(Term term, uint32_t row) {
  const std::vector<Waiting>& all = rows_[row].waiting;
  const auto begin = std::ranges::lower_bound(all, term, {}, &Waiting::term);
  const auto end = std::ranges::upper_bound(all, term, {}, &Waiting::term);
  for (auto waiting = begin; waiting != end; ++waiting) advance(*waiting, row);
}

void Parser::predict(Term term) {
  if (term.kind == Grammar::Kind::kRule) {
    for (const uint32_t dot : rule_dots_[term.index]) add({dot, 0, kSelf});
  } else if (term.kind == Grammar::Kind::kRepeat) {
    add({static_cast<uint32_t>(dots_.size()) + term.index, 0, kSelf});
  }
}

/// What an item entails. What ends in the row in which it began is empty, and who predicted it has been advanced over
/// it already, because it is nullable (Aycock and Horspool 2002).
void Parser::visit(const Item& item) {
  if (item.dot >= dots_.size()) {
    const auto index = static_cast<uint32_t>(item.dot - dots_.size());
    const Grammar::Repeat& repeat = grammar_.repeats[index];
    if (item.count >= repeat.min && item.origin != kSelf)
      complete({Grammar::Kind::kRepeat, index}, item.origin);
    if (item.count < repeat.max) predict(repeat.body);
    return;
  }
  const Dot& dot = dots_[item.dot];
  if (!dot.at_end) {
    if (nullable(dot.term)) add({item.dot + 1, 0, item.origin});
    predict(dot.term);
    return;
  }
  accepted_ |=
      dot.rule == grammar_.start;  // which stands in no rule, and so begins at the start only
  if (item.origin != kSelf) complete({Grammar::Kind::kRule, dot.rule}, item.origin);
}

/// The row of the items that were added since the last one, if there are any that something may come of.
std::optional<uint32_t> Parser::close_row() {
  std::vector<Waiting> waiting;
  std::vector<Item> kernel;  // those that began before; the others follow from them
  for (uint32_t i = 0; i < items_.size(); ++i) {
    const std::span<const uint32_t> words = items_[i];
    const Item item{words[0], words[1], words[2]};
    visit(item);
    Term term;
    if (item.dot < dots_.size()) {
      if (dots_[item.dot].at_end) continue;
      term = dots_[item.dot].term;
    } else {
      const Grammar::Repeat& repeat = grammar_.repeats[item.dot - dots_.size()];
      if (item.count >= repeat.max) continue;
      term = repeat.body;
    }
    waiting.push_back({term, item});
    if (item.origin != kSelf) kernel.push_back(item);
  }
  items_.clear();
  const bool accepted = std::exchange(accepted_, false);
  if (waiting.empty() && !accepted) return std::nullopt;

  std::ranges::sort(kernel, {},
                    [](const Item& item) { return std::tuple(item.dot, item.count, item.origin); });
  std::vector<uint32_t> key{accepted ? 1u : 0u};
  if (rows_.empty()) key = {kFresh};  // the start's, which no other is
  for (const Item& item : kernel) key.insert(key.end(), {item.dot, item.count, item.origin});
  expressions_.fuel().spend(key.size() + 2);
  const WordInterner::Interned row = row_keys_.intern(key);
  if (!row.is_new) return row.number;

  expressions_.fuel().spend(5 * waiting.size());
  std::ranges::sort(waiting, {}, &Waiting::term);
  std::vector<uint32_t> lexemes;
  for (const Waiting& at : waiting) {
    if (at.term.kind != Grammar::Kind::kLexeme) continue;
    if (lexemes.empty() || lexemes.back() != at.term.index) lexemes.push_back(at.term.index);
  }
  const uint32_t start = lexer_.start(lexemes);
  rows_.push_back({std::move(waiting), start, accepted});
  row_items_ += rows_.back().waiting.size();
  return row.number;
}

Parser::State Parser::intern_state(std::vector<uint32_t> threads) {
  normalise_pairs(threads);
  expressions_.fuel().spend(threads.size() + 2);
  const WordInterner::Interned state = states_.intern(threads);
  if (state.is_new) {
    expressions_.fuel().spend(n_classes_);
    transitions_.resize(transitions_.size() + n_classes_,
                        threads.empty() ? kDead : Steps::kUnknown);
  }
  return state.number;
}

Parser::State Parser::make_next(State state, uint8_t byte_class) {
  std::vector<uint32_t> threads;
  const std::span<const uint32_t> from = states_[state];
  for (size_t i = 0; i < from.size(); i += 2) {
    const uint32_t row = from[i];
    const uint32_t before = from[i + 1] == kFresh ? rows_[row].start : from[i + 1];
    const uint32_t lexed = lexer_.next(before, byte_class);
    if (lexed == Lexer::kDead) continue;
    if (lexer_.can_continue(lexed)) threads.insert(threads.end(), {row, lexed});
    lexer_.for_accepted(lexed, [&](uint32_t lexeme) {
      complete({Grammar::Kind::kLexeme, lexeme}, row);
    });
  }
  if (const std::optional<uint32_t> row = close_row())
    threads.insert(threads.end(), {*row, kFresh});
  return transitions_[state * n_classes_ + byte_class] = intern_state(std::move(threads));
}

bool Parser::allows(const TokenTerminal& terminal, TokenId token, bool has_text) {
  const bool named = std::ranges::binary_search(terminal.ids, token);
  return terminal.negated ? !named && has_text : named;
}

Parser::State Parser::next_token(State state, TokenId token, bool has_text) {
  const std::span<const uint32_t> threads = states_[state];
  for (size_t i = 0; i < threads.size(); i += 2) {
    if (threads[i + 1] != kFresh) continue;
    for (const Waiting& waiting : rows_[threads[i]].waiting) {
      if (waiting.term.kind != Grammar::Kind::kTokens) continue;
      if (allows(grammar_.tokens[waiting.term.index], token, has_text))
        advance(waiting, threads[i]);
    }
  }
  const std::optional<uint32_t> row = close_row();
  return row ? intern_state({*row, kFresh}) : kDead;
}

Parser::State Parser::merge(State a, State b) {
  std::vector<uint32_t> threads(states_[a].begin(), states_[a].end());
  threads.insert(threads.end(), states_[b].begin(), states_[b].end());
  return intern_state(std::move(threads));
}

bool Parser::accepts(State state) const {
  const std::span<const uint32_t> threads = states_[state];
  for (size_t i = 0; i < threads.size(); i += 2) {
    if (threads[i + 1] == kFresh && rows_[threads[i]].accepted) return true;
  }
  return false;
}

uint32_t Parser::plain_depth(State state, uint32_t limit) {
  uint32_t deepest = 0;
  const std::span<const uint32_t> threads = states_[state];
  for (size_t i = 0; i < threads.size(); i += 2) {
    const uint32_t lexed = threads[i + 1] == kFresh ? rows_[threads[i]].start : threads[i + 1];
    deepest = std::max(deepest, lexer_.plain_depth(lexed, limit));
  }
  return deepest;
}

std::optional<uint8_t> Parser::only_byte(State state) {
  bool others = accepts(state);
  for_tokens(state, [&](const TokenTerminal&) { others = true; });
  std::optional<uint8_t> only;
  for (uint32_t byte = 0; byte < 256 && !others; ++byte) {
    if (next(state, static_cast<uint8_t>(byte)) == kDead) continue;
    others = only.has_value();
    only = static_cast<uint8_t>(byte);
  }
  return others ? std::nullopt : only;
}

size_t Parser::memory_bytes() const {
  return expressions_.memory_bytes() + lexer_.memory_bytes() + row_keys_.memory_bytes() +
         rows_.capacity() * sizeof(Row) + row_items_ * sizeof(Waiting) + states_.memory_bytes() +
         sizeof(State) * transitions_.capacity();
}

}  // namespace pumice
