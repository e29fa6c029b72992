#include "cache/kv_cache.hpp"

#include <algorithm>
#include <cstring>

namespace pumice {
namespace {

constexpr uint32_t kKeyWords = 2;

}  // namespace

std::string_view miss_reason_name(MissReason reason) {
  constexpr std::string_view kNames[kMissReasonCount] = {"none", "no match", "evicted", "salt",
                                                         "tail", "model",    "group"};
  return kNames[static_cast<size_t>(reason)];
}

KvCache::KvCache(const KvCacheOptions& options)
    : options_(options),
      kinds_(options.kinds, std::max(options.block_tokens, 1u), options.rewind_tokens),
      block_words_(options.keyed ? kKeyWords : options.block_tokens),
      hasher_(options.hash_bits),
      pool_(options.n_pages),
      index_(block_words_, options.n_pages == kUnlimitedPages ? 0 : options.n_pages, kinds_.size()),
      host_{SlotTier(SlotTier::slots_for(options.page_bytes, options.host_bytes)), {}} {
  PUMICE_CHECK(options.block_tokens > 0, "a block of no tokens");
  stats_.kinds.resize(kinds_.size());
}

uint32_t KvCache::blocks_for(uint64_t n_tokens) const {
  return static_cast<uint32_t>((n_tokens + options_.block_tokens - 1) / options_.block_tokens);
}

KvCache::Sequence& KvCache::sequence(SequenceId id) {
  PUMICE_CHECK(id < sequences_.size() && sequences_[id].live, "no such sequence");
  return sequences_[id];
}

const KvCache::Sequence& KvCache::sequence(SequenceId id) const {
  PUMICE_CHECK(id < sequences_.size() && sequences_[id].live, "no such sequence");
  return sequences_[id];
}

// ---- prompts

HashedPrompt KvCache::hash_prompt(std::span<const uint32_t> tokens, std::string_view salt) const {
  return hash_prompt(tokens, salt, options_.model);
}

HashedPrompt KvCache::hash_prompt(std::span<const uint32_t> tokens, std::string_view salt,
                                  const ModelFingerprint& model) const {
  PUMICE_CHECK(!options_.keyed, "this cache is given keys, not tokens");
  HashedPrompt prompt;
  prompt.content.assign(tokens.begin(), tokens.end());
  prompt.n_tokens = static_cast<uint32_t>(tokens.size());
  prompt.model = model;
  prompt.salt = salt;
  hash_blocks(prompt);
  return prompt;
}

HashedPrompt KvCache::hash_keys(std::span<const uint64_t> keys, uint32_t n_tokens,
                                std::string_view salt) const {
  PUMICE_CHECK(options_.keyed, "this cache is given tokens, not keys");
  const size_t n_blocks = n_tokens / options_.block_tokens;
  PUMICE_CHECK(keys.size() >= n_blocks, "fewer keys than full blocks");
  HashedPrompt prompt;
  prompt.content.resize(n_blocks * kKeyWords);
  if (n_blocks > 0) std::memcpy(prompt.content.data(), keys.data(), n_blocks * sizeof(uint64_t));
  prompt.n_tokens = n_tokens;
  prompt.model = options_.model;
  prompt.salt = salt;
  hash_blocks(prompt);
  return prompt;
}

void KvCache::hash_blocks(HashedPrompt& prompt) const {
  prompt.root = hasher_.root(prompt.model, prompt.salt);
  const size_t n_hashed = prompt.hashes.size();
  const std::span<const uint32_t> content(prompt.content);
  prompt.hashes.resize(content.size() / block_words_);
  hasher_.chain(n_hashed == 0 ? prompt.root : prompt.hashes[n_hashed - 1],
                content.subspan(n_hashed * block_words_), block_words_,
                std::span(prompt.hashes).subspan(n_hashed));
  if (!prompt.hashes.empty()) {
    prompt.first_content_hash = hash_content({prompt.content.data(), block_words_});
  }
}

/// The copy to share: one in use, which costs no free page, rather than a free one.
PageId KvCache::best_copy(EntryId entry) const {
  const PageId newest = index_.places(entry).page;
  for (PageId page = newest; page != kNoPage; page = index_.next_copy(page)) {
    if (pool_.references(page) > 0) return page;
  }
  return newest;
}

// ---- sequences

/// A sequence that begins with so many cached tokens takes pages of the kind for blocks up to this one.
uint32_t KvCache::end_block(uint32_t kind, uint32_t cached_tokens, uint32_t reserve_tokens) const {
  const uint64_t next = cached_tokens + uint64_t{1};
  return blocks_for(kinds_.is_window(kind) ? next : std::max<uint64_t>(next, reserve_tokens));
}

/// Can a sequence begin with this match?
Status KvCache::check_room(const Match& match, uint32_t reserve_tokens) const {
  const uint32_t n_cached = matched_tokens(match);
  uint64_t n_wanted = 0;  // free pages that will not be free any more
  for (uint32_t g = 0; g < kinds_.size(); ++g) {
    if (kinds_.is_recurrent(g)) {
      n_wanted += 1;  // to be written
      const NodeId at = match.tail.node != kNoNode ? match.tail.node
                        : match.chain.empty()      ? kNoNode
                                                   : match.chain.back();
      if (at != kNoNode && !in_use(best_copy(index_.entry(at, g)))) ++n_wanted;
      continue;
    }
    const uint32_t first = kinds_.first_block(g, n_cached);
    n_wanted += end_block(g, n_cached, reserve_tokens) - first;
    for (size_t i = first; i < match.chain.size(); ++i) {
      if (in_use(best_copy(index_.entry(match.chain[i], g)))) --n_wanted;
    }
    if (match.tail.node != kNoNode) {
      const PageId source = best_copy(index_.entry(match.tail.node, g));
      // Held until it is copied.
      if (source != kNoPage && pool_.references(source) == 0) ++n_wanted;
    }
  }
  if (pool_.can_take(n_wanted)) return {};
  return make_error(ErrorCode::kDoesNotFit, "{} KV pages wanted, {} of {} are free", n_wanted,
                    pool_.n_free(), pool_.n_pages());
}

Result<SequenceId> KvCache::begin(HashedPrompt& prompt, uint32_t reserve_tokens) {
  Match match = find(prompt);
  if (!check_room(match, reserve_tokens).ok() && match.tail.node != kNoNode) {
    match = find(prompt, false);  // holding its source may be what is too much
  }
  PUMICE_TRY_STATUS(check_room(match, reserve_tokens));
  const CacheReport report = report_of(prompt, match);

  SequenceId id = static_cast<SequenceId>(sequences_.size());
  if (unused_sequences_.empty()) {
    sequences_.emplace_back();
  } else {
    id = unused_sequences_.back();
    unused_sequences_.pop_back();
  }
  Sequence& begun = sequences_[id];
  begun.live = true;
  begun.prompt = std::move(prompt);
  begun.report = report;
  begun.computed_tokens = report.cached_tokens;
  begun.n_indexed = static_cast<uint32_t>(match.chain.size());
  begun.branch = static_cast<uint32_t>(match.n_known) * options_.block_tokens;
  begun.prompt_edge =
      begun.prompt.n_tokens == 0
          ? 0
          : (begun.prompt.n_tokens - 1) / options_.block_tokens * options_.block_tokens;
  if (options_.reuse) {
    begun.tip = match.chain.empty() ? index_.find_or_add_root(begun.prompt.model, begun.prompt.salt,
                                                              begun.prompt.root)
                                    : match.chain.back();
    index_.refer(begun.tip);
  }
  if (kinds_.recurrent() != 0 && match.tail.node != kNoNode) {
    begun.resumed = match.tail.node;
    index_.refer(begun.resumed);
  }
  take_blocks(id, match, reserve_tokens);

  count_begun(begun, false);
  return id;
}

/// `undo`: it was begun on pages that could not be brought, so nothing of it was reused. Until its
/// transfers have ended nothing of it is committed, so its numbers are those it began with.
void KvCache::count_begun(const Sequence& begun, bool undo) {
  const CacheReport& report = begun.report;
  const auto count = [undo](uint64_t& total, uint64_t n) { total += undo ? uint64_t{0} - n : n; };
  count(stats_.queries, 1);
  count(stats_.misses[static_cast<size_t>(report.miss)], 1);
  count(stats_.queried_tokens, report.prompt_tokens);
  count(stats_.cached_tokens, report.cached_tokens);
  count(stats_.host_tokens, report.host_tokens);
  count(stats_.file_tokens, report.file_tokens);
  count(stats_.copied_tokens, report.copied_tokens);
  count(stats_.queried_blocks, report.prompt_tokens / options_.block_tokens);
  count(stats_.matched_blocks, begun.n_indexed);
  if (report.shortened_by == kNoKind) return;
  KindStats& kind = stats_.kinds[report.shortened_by];
  count(kind.shortened, 1);
  count(kind.shortened_tokens, report.others_tokens - report.cached_tokens);
}

void KvCache::take_blocks(SequenceId id, const Match& match, uint32_t reserve_tokens) {
  Sequence& begun = sequences_[id];
  const uint32_t n_cached = begun.computed_tokens;
  const uint32_t n_kinds = kinds_.size();
  const bool has_tail = match.tail.node != kNoNode;
  const NodeId last = has_tail ? match.tail.node : n_cached > 0 ? match.chain.back() : kNoNode;
  begun.held.resize(n_kinds);
  // First hold whatever was matched, so that taking a page does not give it up.
  const auto hold = [&](EntryId entry) {
    const PageId page = best_copy(entry);
    if (page != kNoPage) {
      pool_.share(page);
    } else {
      const auto [tier, slot] = nearest_slot(entry);
      slots(tier).hold(slot);
    }
    return page;
  };
  std::vector<PageId> tail_sources(has_tail ? n_kinds : 0, kNoPage);
  for (uint32_t g = 0; g < n_kinds; ++g) {
    Held& held = begun.held[g];
    if (kinds_.is_recurrent(g)) {
      held.states = {{n_cached, last == kNoNode ? kNoPage : hold(index_.entry(last, g))}};
      continue;
    }
    held.first = kinds_.first_block(g, n_cached);
    held.blocks.reserve(end_block(g, n_cached, reserve_tokens));
    held.blocks.assign(held.first, kNoPage);
    for (size_t i = held.first; i < match.chain.size(); ++i) {
      held.blocks.push_back(hold(index_.entry(match.chain[i], g)));
    }
    if (has_tail) tail_sources[g] = hold(index_.entry(match.tail.node, g));
  }
  for (uint32_t g = 0; g < n_kinds; ++g) {
    Held& held = begun.held[g];
    if (kinds_.is_recurrent(g)) {
      if (last != kNoNode && held.states[0].page == kNoPage) {
        held.states[0].page = take_page();
        restore(id, index_.entry(last, g), held.states[0].page, true);
      }
      held.spare = take_page();
      continue;
    }
    for (size_t i = held.first; i < match.chain.size(); ++i) {
      if (held.blocks[i] != kNoPage) continue;
      held.blocks[i] = take_page();
      restore(id, index_.entry(match.chain[i], g), held.blocks[i], true);
    }
    const uint32_t end = end_block(g, n_cached, reserve_tokens);
    while (held.blocks.size() < end) held.blocks.push_back(take_page());
    if (!has_tail) continue;
    const PageId target = held.blocks[match.chain.size()];
    if (tail_sources[g] != kNoPage) {
      copy(id, g, tail_sources[g], target, match.tail.n_words);
    } else {
      restore(id, index_.entry(match.tail.node, g), target, false);
    }
  }
}

std::span<const PageId> KvCache::blocks(SequenceId id, uint32_t kind) const {
  return sequence(id).held[kind].blocks;
}

PageId KvCache::state(SequenceId id, uint32_t kind, uint32_t position) const {
  const std::vector<State>& states = sequence(id).held[kind].states;
  const auto at = std::ranges::find(states, position, &State::position);
  PUMICE_CHECK(at != states.end(), "there is no state at this position");
  return at->page;
}

uint32_t KvCache::computed_tokens(SequenceId id) const { return sequence(id).computed_tokens; }

std::span<const uint32_t> KvCache::tokens(SequenceId id) const {
  const Sequence& asked = sequence(id);
  if (options_.keyed) return {};
  return asked.prompt.content;
}

const CacheReport& KvCache::report(SequenceId id) const { return sequence(id).report; }

uint32_t KvCache::n_free_pages() const {
  return pool_.unlimited() ? kUnlimitedPages : pool_.n_free();
}

CacheLedger KvCache::ledger() const {
  const uint64_t page_bytes = options_.page_bytes;
  uint64_t host_bytes = 0;
  std::vector<uint64_t> kind_bytes(kinds_.size());
  for (uint32_t g = 0; g < kinds_.size(); ++g) kind_bytes[g] = index_.n_attached(g) * page_bytes;
  for (const auto& memory : host_.memory) host_bytes += memory ? page_bytes : 0;
  return {.device_bytes = pool_.n_pages() * page_bytes,
          .device_used_bytes = (pool_.n_pages() - pool_.n_free()) * page_bytes,
          .device_cached_bytes = index_.n_attached() * page_bytes,
          .kind_cached_bytes = std::move(kind_bytes),
          .host_bytes = host_bytes,
          .host_limit_bytes = host_.slots.n_slots() * page_bytes,
          .file_bytes = file_.slots.n_used() * page_bytes,
          .file_limit_bytes = file_.limit_bytes(),
          .index_bytes = index_.memory_bytes()};
}

}  // namespace pumice
