#include "engine/prompt_lookup.hpp"

#include <algorithm>
#include <memory>
#include <utility>

namespace pumice {

Guess PromptLookup::operator()(std::span<const TokenId> tokens, uint32_t most) {
  const bool goes_on = consistent_ && n_tokens_ <= tokens.size() &&
                       (n_tokens_ == 0 || tokens[n_tokens_ - 1] == last_);
  if (!goes_on) begin();
  const size_t end = std::min(tokens.size(), n_tokens_ + kMostAtOnce);
  consistent_ = false;
  while (n_tokens_ < end) add(tokens[n_tokens_]);
  consistent_ = true;
  if (n_tokens_ < tokens.size() || n_matched() < kLeastMatch) return {};
  const size_t from = states_[states_[whole_].link].end;
  Guess guess;
  guess.kind = n_matched() < 2 * kLeastMatch ? 0 : n_matched() < 4 * kLeastMatch ? 1 : 2;
  for (size_t at = from; guess.tokens.size() < most; ++at) {
    guess.tokens.push_back(at < tokens.size() ? tokens[at] : guess.tokens[at - tokens.size()]);
  }
  return guess;
}

void PromptLookup::begin() {
  states_.assign(1, {});
  transitions_.clear();
  index_.clear();
  whole_ = 0;
  n_tokens_ = 0;
}

uint32_t* PromptLookup::target_of(uint32_t state, TokenId token) {
  State& from = states_[state];
  if (from.target != kNone && from.token == token) return &from.target;
  if (from.more == kNone) return nullptr;
  const auto found = index_.find(uint64_t{state} << 32 | token);
  return found != index_.end() ? &transitions_[found->second].target : nullptr;
}

void PromptLookup::add_transition(uint32_t from, TokenId token, uint32_t to) {
  State& state = states_[from];
  if (state.target == kNone) {
    state.token = token;
    state.target = to;
    return;
  }
  const auto number = static_cast<uint32_t>(transitions_.size());
  transitions_.push_back({token, to, state.more});
  index_.emplace(uint64_t{from} << 32 | token, number);
  state.more = number;
}

/// Its shorter ends, which now occur elsewhere too.
uint32_t PromptLookup::clone_of(uint32_t state, uint32_t length) {
  const auto clone = static_cast<uint32_t>(states_.size());
  State copy = states_[state];
  copy.length = length;
  copy.more = kNone;
  states_.push_back(copy);
  for (uint32_t next = states_[state].more; next != kNone; next = transitions_[next].next) {
    add_transition(clone, transitions_[next].token, transitions_[next].target);
  }
  return clone;
}

void PromptLookup::add(TokenId token) {
  // The longest end that occurs twice occurs here too: of all places the last one is the best guess.
  if (const uint32_t repeated = states_[whole_].link; repeated != kNone) {
    states_[repeated].end = static_cast<uint32_t>(n_tokens_);
  }
  const auto whole = static_cast<uint32_t>(states_.size());
  states_.push_back({.length = states_[whole_].length + 1,
                     .link = 0,
                     .end = static_cast<uint32_t>(n_tokens_ + 1)});
  uint32_t at = whole_;
  uint32_t* target = nullptr;
  for (; at != kNone && (target = target_of(at, token)) == nullptr; at = states_[at].link) {
    add_transition(at, token, whole);
  }
  if (at != kNone) {
    const uint32_t before = *target;
    const uint32_t length = states_[at].length + 1;
    uint32_t link = before;
    if (states_[before].length != length) {
      link = clone_of(before, length);
      states_[before].link = link;
      for (; at != kNone && (target = target_of(at, token)) != nullptr && *target == before;
           at = states_[at].link) {
        *target = link;
      }
    }
    states_[whole].link = link;
  }
  whole_ = whole;
  last_ = token;
  ++n_tokens_;
}

namespace {

/// Goes on with an expected text as long as the answer does. Behind the first difference it looks up
/// in both, the expected text before the other.
class ExpectedLookup {
 public:
  ExpectedLookup(std::vector<TokenId> expected, size_t n_prompt)
      : n_prompt_(n_prompt), n_expected_(expected.size()), texts_(std::move(expected)) {}

  Guess operator()(std::span<const TokenId> tokens, uint32_t most) {
    const auto expected = std::span<const TokenId>(texts_).first(n_expected_);
    const auto said = tokens.subspan(std::min(n_prompt_, tokens.size()));
    if (said.size() < n_expected_ && std::ranges::equal(said, expected.first(said.size()))) {
      const auto next = expected.subspan(said.size());
      const auto guessed = next.first(std::min<size_t>(most, next.size()));
      return {{guessed.begin(), guessed.end()}, kSurest};
    }
    texts_.resize(n_expected_);
    texts_.insert(texts_.end(), tokens.begin(), tokens.end());
    return lookup_(texts_, most);
  }

 private:
  static constexpr uint32_t kSurest = 2;  // PromptLookup's kind of the longest matches

  const size_t n_prompt_;
  const size_t n_expected_;
  std::vector<TokenId> texts_;  // the expected one, then that of the last call
  PromptLookup lookup_;
};

}  // namespace

Drafter prompt_lookup_drafter(std::vector<TokenId> expected, size_t n_prompt) {
  if (!expected.empty()) {
    return [lookup = std::make_shared<ExpectedLookup>(std::move(expected), n_prompt)](
               std::span<const TokenId> tokens, uint32_t most) { return (*lookup)(tokens, most); };
  }
  return [lookup = std::make_shared<PromptLookup>()](
             std::span<const TokenId> tokens, uint32_t most) { return (*lookup)(tokens, most); };
}

}  // namespace pumice
