#include "tests/model_fuzz/cache_world.hpp"

#include <fmt/core.h>

namespace pumice::model_fuzz {

CacheWorld::CacheWorld(uint64_t seed)
    : random_(seed),
      options_(random_cache(random_)),
      cache_(options_),
      naive_(naive_cache(options_)),
      device_(options_.block_tokens, naive_kinds(options_.kinds)) {}

void CacheWorld::same(uint64_t product, uint64_t reference, const char* what) const {
  if (product == reference) return;
  diverged(fmt::format("{}: {}, the reference says {}", what, product, reference));
}

void CacheWorld::step() {
  const uint32_t choice = pick(100);
  if (choice < 14 || running_.empty()) {
    begin();
  } else if (choice < 20) {
    end(pick(static_cast<uint32_t>(running_.size())));
  } else if (choice < 28) {
    transfer(chance(80));
  } else if (choice < 60) {
    compute(any());
  } else if (choice < 85) {
    commit(any());
  } else if (choice < 99 || chance(94)) {
    rewind(any());
  } else {
    lose_device();
  }
  compare();
}

void CacheWorld::begin() {
  Tokens tokens;
  HashedPrompt prompt;
  if (!suspended_.empty() && chance(30)) {
    prompt = std::move(suspended_.back().first);
    tokens = suspended_.back().second;
    suspended_.pop_back();
  } else {
    if (!texts_.empty() && chance(80)) {
      tokens = texts_[pick(static_cast<uint32_t>(texts_.size()))];
      if (chance(70)) tokens.resize(pick(static_cast<uint32_t>(tokens.size()) + 1));
    }
    for (uint32_t n = 1 + pick(chance(20) ? 30 : 8); n > 0; --n) tokens.push_back(pick(3));
    prompt = cache_.hash_prompt(tokens, chance(20) ? "a" : "");
  }
  const std::string salt = prompt.salt;
  const uint32_t reserve = chance(50) ? 0 : static_cast<uint32_t>(tokens.size());
  const CacheReport foreseen = cache_.look_up(prompt);
  const NaiveCache::Blame blame = naive_.blame(tokens, salt);
  same(foreseen.cached_tokens, naive_.find_for(tokens, salt).tokens, "cached tokens");
  same(foreseen.shortened_by, blame.kind ? *blame.kind : kNoKind, "the group to blame");
  same(foreseen.others_tokens, blame.others, "what the others have");
  const Result<SequenceId> id = cache_.begin(prompt, reserve);
  const auto naive = naive_.begin(tokens, salt, reserve);
  same(id.ok(), naive.has_value(), "whether a sequence begins");
  if (!id.ok()) {
    if (prompt.content != tokens) diverged("a prompt that does not begin is changed");
    return;
  }
  same(cache_.report(*id).cached_tokens, naive_.sequence(*naive).cached, "cached tokens");
  ++counts_.begun;
  counts_.cached_tokens += cache_.report(*id).cached_tokens;
  counts_.shortened += foreseen.shortened_by != kNoKind ? 1 : 0;
  running_.push_back({*id, *naive, next_number_++, tokens, salt, {}});
}

/// Plan a step and run it: the device is ahead of what is committed by two steps at most.
void CacheWorld::compute(Running& one) {
  if (naive_.waits_for_copies(one.naive)) transfer(true);
  const uint32_t first = one.planned.empty() ? cache_.computed_tokens(one.id) : one.planned.back();
  const auto known = static_cast<uint32_t>(one.tokens.size());
  if (one.planned.size() == 2 || first == known) return;
  uint32_t end = first + 1 + pick(known - first);
  const auto kept = naive_.next_kept(one.naive, first);
  same(cache_.next_kept_state(one.id, first), kept ? *kept : UINT32_MAX, "the next kept state");
  if (kept && chance(70)) end = std::min(end, static_cast<uint32_t>(*kept));
  same(cache_.pages_lacking(one.id, end), naive_.lacking(one.naive, end), "lacking blocks");
  const bool room = cache_.reserve(one.id, end).ok();
  same(room, naive_.reserve(one.naive, end), "whether there is room");
  if (!room) {
    const uint32_t most = std::min(cache_.reserved_tokens(one.id), end);
    same(most, naive_.reserved(one.naive, end), "reserved tokens");
    return;
  }
  cache_.plan(one.id, end);
  naive_.plan(one.naive, end);
  NaiveDevice::Row row{
      StepChunk{.request = one.number, .first_position = first, .n_tokens = end - first},
      {},
      {},
      one.tokens,
      one.salt};
  for (uint32_t g = 0; g < cache_.kinds().size(); ++g) {
    const std::span<const PageId> blocks = cache_.blocks(one.id, g);
    row.blocks.emplace_back(blocks.begin(), blocks.end());
    row.states.emplace_back(kNoPage, kNoPage);
    if (!cache_.kinds().is_recurrent(g)) continue;
    row.states.back() = {cache_.state(one.id, g, first), cache_.state(one.id, g, end)};
  }
  device_.run(row);
  one.planned.push_back(end);
}

/// The oldest step counts, or none of them does.
void CacheWorld::commit(Running& one) {
  if (one.planned.empty()) return;
  if (chance(15)) {
    const uint32_t computed = cache_.computed_tokens(one.id);
    cache_.unplan(one.id, computed);
    cache_.shrink(one.id, computed);
    naive_.unplan(one.naive, computed);
    naive_.shrink(one.naive, computed);
    one.planned.clear();
    return;
  }
  const uint32_t end = one.planned.front();
  one.planned.pop_front();
  cache_.commit(one.id, end);
  naive_.commit(one.naive, end);
  ++counts_.committed;
  if (end != one.tokens.size() || !one.planned.empty()) return;
  for (uint32_t n = 1 + pick(chance(20) ? 6 : 1); n > 0; --n) {
    one.tokens.push_back(pick(3));
    cache_.append(one.id, {&one.tokens.back(), 1});
    naive_.append(one.naive, one.tokens.back());
  }
}

void CacheWorld::rewind(Running& one) {
  if (naive_.waits_for_copies(one.naive)) transfer(true);
  if (!one.planned.empty()) return;
  const uint32_t computed = cache_.computed_tokens(one.id);
  const uint32_t back = pick(chance(70) ? 6 : computed + 1);
  const uint32_t n_tokens = chance(3) ? computed + 1 : computed - std::min(back, computed);
  const bool done = cache_.rewind(one.id, n_tokens).ok();
  same(done, naive_.rewind(one.naive, n_tokens), "whether a sequence goes back");
  ++(done ? counts_.rewound : counts_.not_rewound);
  if (!done) return;
  same(cache_.computed_tokens(one.id), n_tokens, "computed tokens after going back");
  one.tokens.resize(std::min<size_t>(one.tokens.size(), n_tokens));
  for (uint32_t n = 1 + pick(4); n > 0; --n) {  // what it says instead
    one.tokens.push_back(pick(3));
    cache_.append(one.id, {&one.tokens.back(), 1});
    naive_.append(one.naive, one.tokens.back());
  }
}

void CacheWorld::end(size_t index) {
  const Running ended = std::move(running_[index]);
  running_.erase(running_.begin() + static_cast<ptrdiff_t>(index));
  texts_.push_back(ended.tokens);
  if (texts_.size() > 30) texts_.erase(texts_.begin());
  naive_.end(ended.naive);
  if (chance(50)) {
    cache_.release(ended.id);
    return;
  }
  HashedPrompt prompt = cache_.suspend(ended.id);
  if (prompt.content != ended.tokens) diverged("a suspended sequence has other tokens");
  suspended_.emplace_back(std::move(prompt), ended.tokens);
}

void CacheWorld::lose_device() {
  while (!running_.empty()) end(running_.size() - 1);
  cache_.forget_device();
  naive_.forget_all();
  device_ = NaiveDevice(options_.block_tokens, naive_kinds(options_.kinds));
  ++counts_.losses;
}

void CacheWorld::transfer(bool good) {
  const Transfers transfers = cache_.take_transfers();
  for (const PageCopy& copy : transfers.copies) {
    if (good) device_.copy(copy);
  }
  const std::vector<SequenceId> lost = cache_.finish_transfers(transfers.batch, {.all = !good});
  const std::vector<NaiveCache::Id> expected = naive_.copied_all(good);
  same(lost.size(), expected.size(), "lost sequences");
  for (size_t i = 0; i < lost.size(); ++i) {
    const auto at = std::ranges::find(running_, lost[i], &Running::id);
    if (at == running_.end() || at->naive != expected[i]) diverged("another sequence is lost");
    end(static_cast<size_t>(at - running_.begin()));
  }
}

void CacheWorld::compare(const Running& one) {
  const NaiveCache::Sequence& expected = naive_.sequence(one.naive);
  same(cache_.computed_tokens(one.id), expected.computed, "computed tokens");
  for (uint32_t g = 0; g < cache_.kinds().size(); ++g) {
    const std::span<const PageId> blocks = cache_.blocks(one.id, g);
    same(blocks.size(), expected.blocks[g].size(), "blocks");
    for (size_t i = 0; i < blocks.size(); ++i) {
      same(blocks[i] != kNoPage, expected.blocks[g][i].has_value(), "a block");
      counts_.behind += blocks[i] == kNoPage ? 1 : 0;
    }
  }
}

void CacheWorld::compare() {
  const Status integrity = cache_.check_integrity();
  if (!integrity.ok()) diverged(integrity.error().message);
  for (const Running& one : running_) compare(one);
  same(cache_.pool().n_free(), naive_.n_free(), "free blocks");
  same(cache_.n_pages(), naive_.n_pages(), "blocks in all");
}

void CacheWorld::finish() {
  while (!running_.empty()) {
    end(running_.size() - 1);
    compare();
  }
  if (cache_.pool().n_free() != cache_.n_pages()) diverged("blocks are leaked");
}

}  // namespace pumice::model_fuzz
