#include "constraints/constraint_automaton.hpp"

#include <algorithm>
#include <functional>

namespace pumice {
namespace {

constexpr size_t kCachedMasks = 64;
constexpr size_t kMaxForcedBytes = 64;

}  // namespace

ConstraintAutomaton::ConstraintAutomaton(Grammar grammar, const VocabularyTrie& vocabulary,
                                         const ConstraintLimits& limits)
    : grammar_(std::move(grammar)),
      vocabulary_(vocabulary),
      limits_(limits),
      path_(VocabularyTrie::kMaxDepth + 1) {
  begin_anew();
}

void ConstraintAutomaton::begin_anew() {
  spoiled_ = true;  // until it is made
  parser_.reset();
  parser_ = std::make_unique<Parser>(grammar_, limits_.fuel);
  cache_.clear();
  next_cached_ = 0;
  ++generation_;
  spoiled_ = false;
}

void ConstraintAutomaton::prepare() {
  if (spoiled_ || parser_->memory_bytes() > limits_.memory_bytes) begin_anew();
  refill();
}

ConstraintAutomaton::State ConstraintAutomaton::feed(State state, std::string_view text) {
  for (const char c : text) state = parser_->next(state, static_cast<uint8_t>(c));
  return state;
}

ConstraintAutomaton::State ConstraintAutomaton::next(State state, TokenId token) {
  if (state == kEnded || token >= vocabulary_.n_tokens()) return Parser::kDead;
  const std::string_view text = vocabulary_.text(token);
  const State as_text = text.empty() ? Parser::kDead : feed(state, text);
  const State as_token = parser_->next_token(state, token, !text.empty());
  if (as_token == Parser::kDead && as_text == Parser::kDead) {
    const bool ends = std::ranges::binary_search(vocabulary_.end_tokens(), token);
    return ends && parser_->accepts(state) ? kEnded : Parser::kDead;
  }
  return parser_->merge(as_text, as_token);
}

void ConstraintAutomaton::walk(std::span<const VocabularyTrie::Node> nodes, State state,
                               std::span<uint32_t> mask) {
  State* const path = path_.data();
  path[0] = state;
  Parser::Steps steps = parser_->steps();
  for (size_t i = 0; i < nodes.size();) {
    const VocabularyTrie::Node node = nodes[i];
    const State from = path[node.depth - 1];
    State reached = steps.next(from, static_cast<uint8_t>(node.byte));
    if (reached == Parser::Steps::kUnknown) {
      reached = parser_->next(from, static_cast<uint8_t>(node.byte));
      steps = parser_->steps();
    }
    if (reached == Parser::kDead) {
      i += node.skip;
      continue;
    }
    path[node.depth] = reached;
    if (node.token != VocabularyTrie::kNoToken) set_bit(mask, static_cast<TokenId>(node.token));
    ++i;
  }
}

void ConstraintAutomaton::fill(State state, std::span<uint32_t> mask) {
  std::ranges::fill(mask, 0);
  if (state == kEnded) return;
  const std::span<const VocabularyTrie::Slice> slices = vocabulary_.slices();
  size_t n_whole = 0;
  if (!slices.empty()) {
    const uint32_t depth = parser_->plain_depth(state, slices.back().max_characters);
    while (n_whole < slices.size() && slices[n_whole].max_characters <= depth) ++n_whole;
  }
  if (n_whole > 0) std::ranges::copy(slices[n_whole - 1].mask, mask.begin());
  for (const VocabularyTrie::Slice& slice : slices.subspan(n_whole)) walk(slice.nodes, state, mask);
  walk(vocabulary_.rest(), state, mask);
  for (const TokenId id : vocabulary_.long_tokens()) {
    if (feed(state, vocabulary_.text(id)) != Parser::kDead) set_bit(mask, id);
  }
  for (const auto& [first, second] : vocabulary_.twins()) {
    if (has_bit(mask, first)) set_bit(mask, second);
  }
  parser_->for_tokens(state, [&](const TokenTerminal& terminal) {
    if (!terminal.negated) {
      for (const TokenId id : terminal.ids) set_bit(mask, id);
      return;
    }
    TokenMask allowed = vocabulary_.with_text();
    for (const TokenId id : terminal.ids) allowed[id / 32] &= ~(1u << id % 32);
    std::ranges::transform(mask, allowed, mask.begin(), std::bit_or<>());
  });
  if (!parser_->accepts(state)) return;
  for (const TokenId id : vocabulary_.end_tokens()) set_bit(mask, id);
}

const TokenMask& ConstraintAutomaton::mask(State state) {
  const auto cached = std::ranges::find(cache_, state, &Cached::state);
  if (cached != cache_.end()) return cached->mask;
  TokenMask mask(vocabulary_.mask_words());
  fill(state, mask);
  if (cache_.size() < kCachedMasks) {
    cache_.push_back({state, std::move(mask)});
    return cache_.back().mask;
  }
  Cached& oldest = cache_[next_cached_++ % kCachedMasks];
  oldest = {state, std::move(mask)};
  return oldest.mask;
}

bool ConstraintAutomaton::can_continue(State state) {
  if (state == kEnded) return false;
  bool can = false;
  parser_->for_tokens(state, [&](const TokenTerminal&) { can = true; });
  for (uint32_t byte = 0; byte < 256 && !can; ++byte) {
    can = parser_->next(state, static_cast<uint8_t>(byte)) != Parser::kDead;
  }
  return can;
}

std::string ConstraintAutomaton::forced_text(State state) {
  std::string text;
  while (state != kEnded && text.size() < kMaxForcedBytes) {
    const std::optional<uint8_t> byte = parser_->only_byte(state);
    if (!byte) break;
    text += static_cast<char>(*byte);
    state = parser_->next(state, *byte);
  }
  return text;
}

}  // namespace pumice
