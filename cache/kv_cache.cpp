#include "cache/kv_cache.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace pumice {
namespace {

constexpr uint32_t kKeyWords = 2;

}  // namespace

std::string_view miss_reason_name(MissReason reason) {
  switch (reason) {
    case MissReason::kNone:
      return "none";
    case MissReason::kNoMatch:
      return "no match";
    case MissReason::kEvicted:
      return "evicted";
    case MissReason::kSalt:
      return "salt";
    case MissReason::kTail:
      return "tail";
    case MissReason::kModel:
      return "model";
  }
  return "unknown";
}

KvCache::KvCache(const KvCacheOptions& options)
    : options_(options),
      block_words_(options.keyed ? kKeyWords : options.block_tokens),
      hasher_(options.hash_bits),
      pool_(options.n_blocks),
      index_(block_words_, options.n_blocks == kUnlimitedBlocks ? 0 : options.n_blocks),
      host_{SlotTier(SlotTier::slots_for(options.block_bytes, options.host_bytes)), {}} {
  PUMICE_CHECK(options.block_tokens > 0, "a block of no tokens");
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
  prompt.hashes.resize(prompt.content.size() / block_words_);
  hasher_.chain(prompt.root, prompt.content, block_words_, prompt.hashes);
  if (!prompt.hashes.empty()) {
    prompt.first_content_hash = hash_content({prompt.content.data(), block_words_});
  }
}

// ---- looking up

KvCache::Match KvCache::find(const HashedPrompt& prompt) const {
  Match match;
  if (options_.reuse) match.root = index_.find_root(prompt.model, prompt.salt);
  if (match.root != kNoNode && prompt.n_tokens > 0) {
    const uint32_t n_usable = prompt.n_tokens - 1;
    const size_t n_full = std::min<size_t>(prompt.hashes.size(), n_usable / options_.block_tokens);
    const std::span<const uint32_t> content(prompt.content);
    index_.find_chain(match.root, {prompt.hashes.data(), n_full}, content, match.chain);
    if (!options_.keyed) {
      const size_t n_matched = match.chain.size() * options_.block_tokens;
      const size_t n_rest = std::min<size_t>(n_usable - n_matched, options_.block_tokens);
      match.tail = index_.best_child(match.chain.empty() ? match.root : match.chain.back(),
                                     content.subspan(n_matched, n_rest));
    }
  }
  match.miss = explain(prompt, match);
  return match;
}

MissReason KvCache::explain(const HashedPrompt& prompt, const Match& match) const {
  const size_t n_matched = match.chain.size();
  const size_t n_cached = n_matched * options_.block_tokens + match.tail.n_words;
  if (prompt.n_tokens == 0 || n_cached + 1 >= prompt.n_tokens) return MissReason::kNone;
  if (n_matched == prompt.hashes.size() && n_matched > 0) return MissReason::kTail;
  if (n_matched < prompt.hashes.size() && memory_.was_evicted(prompt.hashes[n_matched])) {
    return MissReason::kEvicted;
  }
  if (n_matched > 0 || prompt.hashes.empty()) return MissReason::kNoMatch;
  switch (memory_.seen_first(prompt.first_content_hash, prompt.model, prompt.root)) {
    case MissMemory::Seen::kOtherModel:
      return MissReason::kModel;
    case MissMemory::Seen::kOtherSalt:
      return MissReason::kSalt;
    default:
      return MissReason::kNoMatch;
  }
}

CacheReport KvCache::report_of(const HashedPrompt& prompt, const Match& match) const {
  CacheReport report{.prompt_tokens = prompt.n_tokens, .miss = match.miss};
  const auto add = [&](const PrefixNode& node, uint32_t n_tokens, uint32_t& on_device) {
    if (node.block != kNoBlock) {
      on_device += n_tokens;
    } else if (node.host_slot != kNowhere) {
      report.host_tokens += n_tokens;
    } else {
      report.file_tokens += n_tokens;
    }
    report.cached_tokens += n_tokens;
  };
  for (const NodeId id : match.chain) {
    add(index_.node(id), options_.block_tokens, report.shared_tokens);
  }
  if (match.tail.node != kNoNode) {
    add(index_.node(match.tail.node), match.tail.n_words, report.copied_tokens);
  }
  return report;
}

CacheReport KvCache::look_up(const HashedPrompt& prompt) const {
  return report_of(prompt, find(prompt));
}

/// The copy to share: one in use, which costs no free block, rather than a free one.
BlockId KvCache::best_copy(NodeId node) const {
  const BlockId newest = index_.node(node).block;
  for (BlockId block = newest; block != kNoBlock; block = index_.next_copy(block)) {
    if (pool_.references(block) > 0) return block;
  }
  return newest;
}

// ---- sequences

/// Can a sequence of `n_blocks` blocks begin with this match?
Status KvCache::check_room(const Match& match, uint32_t n_blocks) const {
  uint64_t n_wanted = n_blocks;  // free blocks that will not be free any more
  for (const NodeId id : match.chain) {
    const BlockId block = best_copy(id);
    if (block != kNoBlock && pool_.references(block) > 0) --n_wanted;
  }
  if (match.tail.node != kNoNode) {
    const BlockId source = best_copy(match.tail.node);
    if (source != kNoBlock && pool_.references(source) == 0) ++n_wanted;  // held until it is copied
  }
  if (pool_.can_take(n_wanted)) return {};
  return make_error(ErrorCode::kDoesNotFit, "{} KV blocks wanted, {} of {} are free", n_wanted,
                    pool_.n_free(), pool_.n_blocks());
}

Result<SequenceId> KvCache::begin(HashedPrompt& prompt, uint32_t reserve_tokens) {
  Match match = find(prompt);
  CacheReport report = report_of(prompt, match);
  const auto n_blocks = [&] {
    return blocks_for(std::max<uint64_t>(report.cached_tokens + uint64_t{1}, reserve_tokens));
  };
  if (!check_room(match, n_blocks()).ok() && match.tail.node != kNoNode) {
    match.tail = {};  // holding its source may be what is too much
    report = report_of(prompt, match);
  }
  const uint32_t n_wanted = n_blocks();
  PUMICE_TRY_STATUS(check_room(match, n_wanted));

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
  if (options_.reuse) {
    begun.tip = match.chain.empty() ? index_.find_or_add_root(begun.prompt.model, begun.prompt.salt,
                                                              begun.prompt.root)
                                    : match.chain.back();
    index_.refer(begun.tip);
  }
  take_blocks(id, match, n_wanted);

  count_begun(begun);
  return id;
}

void KvCache::count_begun(const Sequence& begun) {
  const CacheReport& report = begun.report;
  ++stats_.queries;
  ++stats_.misses[static_cast<size_t>(report.miss)];
  stats_.queried_tokens += report.prompt_tokens;
  stats_.cached_tokens += report.cached_tokens;
  stats_.host_tokens += report.host_tokens;
  stats_.file_tokens += report.file_tokens;
  stats_.copied_tokens += report.copied_tokens;
  stats_.queried_blocks += report.prompt_tokens / options_.block_tokens;
  stats_.matched_blocks += begun.n_indexed;
}

/// It was begun on blocks that could not be brought: nothing of it was reused. Until its transfers
/// have ended nothing of it is committed, so its numbers are those it began with.
void KvCache::uncount_begun(const Sequence& lost) {
  const CacheReport& report = lost.report;
  --stats_.queries;
  --stats_.misses[static_cast<size_t>(report.miss)];
  stats_.queried_tokens -= report.prompt_tokens;
  stats_.cached_tokens -= report.cached_tokens;
  stats_.host_tokens -= report.host_tokens;
  stats_.file_tokens -= report.file_tokens;
  stats_.copied_tokens -= report.copied_tokens;
  stats_.queried_blocks -= report.prompt_tokens / options_.block_tokens;
  stats_.matched_blocks -= lost.n_indexed;
}

void KvCache::take_blocks(SequenceId id, const Match& match, uint32_t n_blocks) {
  Sequence& begun = sequences_[id];
  // First hold whatever was matched, so that taking a block does not give it up.
  const auto hold = [&](NodeId node) {
    const BlockId block = best_copy(node);
    if (block != kNoBlock) pool_.share(block);
    return block;
  };
  for (const NodeId node : match.chain) begun.blocks.push_back(hold(node));
  const BlockId tail_source = match.tail.node == kNoNode ? kNoBlock : hold(match.tail.node);
  const auto hold_slot = [&](NodeId node) {
    const auto [tier, slot] = nearest_slot(node);
    slots(tier).hold(slot);
  };
  for (size_t i = 0; i < match.chain.size(); ++i) {
    if (begun.blocks[i] == kNoBlock) hold_slot(match.chain[i]);
  }
  if (match.tail.node != kNoNode && tail_source == kNoBlock) hold_slot(match.tail.node);
  for (size_t i = 0; i < match.chain.size(); ++i) {
    if (begun.blocks[i] != kNoBlock) continue;
    begun.blocks[i] = take_block();
    restore(id, match.chain[i], begun.blocks[i], true);
  }
  while (begun.blocks.size() < n_blocks) begun.blocks.push_back(take_block());
  if (match.tail.node == kNoNode) return;
  const BlockId target = begun.blocks[match.chain.size()];
  if (tail_source != kNoBlock) {
    copy(id, tail_source, target, match.tail.n_words);
  } else {
    restore(id, match.tail.node, target, false);
  }
}

uint32_t KvCache::blocks_lacking(SequenceId id, uint32_t n_tokens) const {
  const uint32_t n_held = static_cast<uint32_t>(sequence(id).blocks.size());
  const uint32_t n_blocks = blocks_for(n_tokens);
  return n_blocks > n_held ? n_blocks - n_held : 0;
}

Status KvCache::reserve(SequenceId id, uint32_t n_tokens) {
  const uint32_t n_lacking = blocks_lacking(id, n_tokens);
  if (!pool_.can_take(n_lacking)) {
    return make_error(ErrorCode::kDoesNotFit, "{} more KV blocks wanted, {} of {} are free",
                      n_lacking, pool_.n_free(), pool_.n_blocks());
  }
  for (uint32_t i = 0; i < n_lacking; ++i) sequences_[id].blocks.push_back(take_block());
  return {};
}

void KvCache::shrink(SequenceId id, uint32_t n_tokens) {
  Sequence& shrunk = sequence(id);
  const uint32_t n_blocks = blocks_for(std::max(n_tokens, shrunk.computed_tokens));
  if (shrunk.blocks.size() <= n_blocks) return;
  pool_.release(std::span<const BlockId>(shrunk.blocks).subspan(n_blocks));
  shrunk.blocks.resize(n_blocks);
}

void KvCache::append(SequenceId id, std::span<const uint32_t> tokens) {
  Sequence& grown = sequence(id);
  grown.prompt.n_tokens += static_cast<uint32_t>(tokens.size());
  if (options_.keyed) return;
  grown.prompt.content.insert(grown.prompt.content.end(), tokens.begin(), tokens.end());
  index_filled_blocks(grown);
}

void KvCache::commit(SequenceId id, uint32_t computed_tokens) {
  Sequence& committed = sequence(id);
  PUMICE_CHECK(committed.n_transfers == 0 && !committed.lost,
               "committed before its blocks were restored");
  PUMICE_CHECK(computed_tokens >= committed.computed_tokens, "committed tokens are taken back");
  PUMICE_CHECK(blocks_for(computed_tokens) <= committed.blocks.size(),
               "more tokens committed than blocks hold");
  committed.computed_tokens = computed_tokens;
  index_filled_blocks(committed);
}

/// Make the full blocks that are computed and whose tokens are known findable.
void KvCache::index_filled_blocks(Sequence& filled) {
  if (!options_.reuse || filled.n_transfers > 0 || filled.lost) return;
  HashedPrompt& prompt = filled.prompt;
  const size_t n_full = std::min<size_t>(prompt.content.size() / block_words_,
                                         filled.computed_tokens / options_.block_tokens);
  for (size_t i = filled.n_indexed; i < n_full; ++i) {
    const std::span<const uint32_t> content =
        std::span<const uint32_t>(prompt.content).subspan(i * block_words_, block_words_);
    if (prompt.hashes.size() == i) {
      prompt.hashes.push_back(hasher_.child(i == 0 ? prompt.root : prompt.hashes[i - 1], content));
      if (i == 0) prompt.first_content_hash = hash_content(content);
    }
    const BlockHash& hash = prompt.hashes[i];
    NodeId node = index_.find(hash, filled.tip, content);
    if (node == kNoNode) node = index_.add(hash, filled.tip, content);
    index_.attach(node, filled.blocks[i]);
    pool_.set_cached(filled.blocks[i], true);
    index_.refer(node);
    index_.unrefer(filled.tip);
    filled.tip = node;
    if (i == 0) memory_.remember_first(prompt.first_content_hash, prompt.model, prompt.root);
  }
  filled.n_indexed = std::max(filled.n_indexed, static_cast<uint32_t>(n_full));
}

/// Keep the head of the last block for a later turn to copy.
void KvCache::index_partial_block(const Sequence& ended) {
  if (!options_.reuse || options_.keyed || ended.n_transfers > 0 || ended.lost) return;
  const size_t first = size_t{ended.n_indexed} * options_.block_tokens;
  const size_t end = std::min<size_t>(ended.prompt.content.size(), ended.computed_tokens);
  if (end <= first) return;
  const std::span<const uint32_t> content =
      std::span<const uint32_t>(ended.prompt.content).subspan(first, end - first);
  const PrefixIndex::ChildMatch known = index_.best_child(ended.tip, content);
  if (known.n_words == content.size()) return;  // nothing that is not there already
  if (known.n_words > 0 && known.n_words == index_.node(known.node).n_words) {
    // Ours continues a partial block: that one is of no more use.
    const BlockId shorter = index_.node(known.node).block;
    if (shorter != kNoBlock) uncache(shorter);
  }
  const NodeId node = index_.add({}, ended.tip, content);
  index_.attach(node, ended.blocks[ended.n_indexed]);
  pool_.set_cached(ended.blocks[ended.n_indexed], true);
}

/// Of several blocks with one content keep what is used longest: other owners' blocks, else this
/// sequence's, so that a block never outlasts its parent in the order of use.
void KvCache::drop_copies(const Sequence& ended) {
  for (const BlockId block : ended.blocks) {
    const NodeId node = index_.node_of(block);
    if (node == kNoNode || pool_.references(block) > 1) continue;
    BlockId other = index_.node(node).block;
    while (other != kNoBlock && index_.node_of(block) != kNoNode) {
      const BlockId next = index_.next_copy(other);
      if (other != block) uncache(pool_.references(other) > 0 ? block : other);
      other = next;
    }
  }
}

void KvCache::uncache(BlockId block) {
  pool_.set_cached(block, false);
  index_.detach(block);
}

HashedPrompt KvCache::end(SequenceId id) {
  Sequence& ended = sequence(id);
  index_partial_block(ended);
  drop_transfers(id);
  drop_copies(ended);
  pool_.release(ended.blocks);
  if (ended.tip != kNoNode) index_.unrefer(ended.tip);
  HashedPrompt prompt = std::move(ended.prompt);
  ended = Sequence{};
  unused_sequences_.push_back(id);
  return prompt;
}

void KvCache::release(SequenceId id) { (void)end(id); }

HashedPrompt KvCache::suspend(SequenceId id) { return end(id); }

std::span<const BlockId> KvCache::blocks(SequenceId id) const { return sequence(id).blocks; }

uint32_t KvCache::computed_tokens(SequenceId id) const { return sequence(id).computed_tokens; }

const CacheReport& KvCache::report(SequenceId id) const { return sequence(id).report; }

uint32_t KvCache::n_free_blocks() const {
  return pool_.unlimited() ? kUnlimitedBlocks : pool_.n_free();
}

// ---- the prompt cache file

Status KvCache::open_prompt_cache(const std::filesystem::path& path, uint64_t limit_bytes) {
  PUMICE_CHECK(!file_.slots.exists(), "a second prompt cache file");
  if (options_.keyed || !options_.reuse || options_.block_bytes == 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "a prompt cache file needs a cache of tokens, with reuse, and block_bytes");
  }
  PUMICE_TRY(file_, FileTier::open(path,
                                   {.model = options_.model,
                                    .layout = options_.layout,
                                    .block_tokens = options_.block_tokens,
                                    .block_bytes = options_.block_bytes},
                                   limit_bytes));
  const PromptCacheFile* opened = file_.opened();
  if (opened == nullptr || opened->n_records() == 0) return {};
  const BlockHash root_hash = hasher_.root(options_.model, "");
  const NodeId root = index_.find_or_add_root(options_.model, "", root_hash);
  index_.refer(root);
  const uint32_t n_records = opened->n_records();  // no more than there are slots
  std::vector<NodeId> nodes(n_records, kNoNode);
  for (uint32_t i = 0; i < n_records; ++i) {
    const uint32_t parent_record = opened->record(i).parent;
    const NodeId parent = parent_record == PromptCacheFile::kNoParent ? root : nodes[parent_record];
    const std::span<const uint32_t> content = opened->tokens(i);
    BlockHash hash;
    if (content.size() == block_words_) {
      hash = hasher_.child(index_.node(parent).hash, content);
      nodes[i] = index_.find(hash, parent, content);
    }
    if (nodes[i] == kNoNode) nodes[i] = index_.add(hash, parent, content);
    index_.refer(nodes[i]);
  }
  // Used last is given up last: children, which come later, before their parents.
  for (uint32_t i = n_records; i-- > 0;) {
    if (index_.node(nodes[i]).file_slot == kNowhere) {
      const SlotTier::Placed placed = file_.slots.put(nodes[i]);
      index_.set_file_slot(nodes[i], placed.slot);
      file_.adopt(placed.slot, i);
    }
    index_.unrefer(nodes[i]);
  }
  index_.unrefer(root);
  return {};
}

std::vector<KvCache::CachedBlock> KvCache::cached_blocks() const {
  std::vector<CachedBlock> blocks;
  const NodeId root = index_.find_root(options_.model, "");
  if (root == kNoNode) return blocks;
  std::vector<std::pair<NodeId, size_t>> open = {{root, CachedBlock::kNone}};
  while (!open.empty()) {
    const auto [parent, position] = open.back();
    open.pop_back();
    for (const NodeId id : index_.children(parent)) {
      const PrefixNode& node = index_.node(id);
      if (!node.has_bytes()) continue;
      open.emplace_back(id, blocks.size());
      blocks.push_back({position, index_.content(id), node.block, node.host_slot, node.file_slot});
    }
  }
  return blocks;
}

CacheLedger KvCache::ledger() const {
  const uint64_t block_bytes = options_.block_bytes;
  uint64_t host_bytes = 0;
  for (const auto& memory : host_.memory) host_bytes += memory ? block_bytes : 0;
  return {.device_bytes = pool_.n_blocks() * block_bytes,
          .device_used_bytes = (pool_.n_blocks() - pool_.n_free()) * block_bytes,
          .device_cached_bytes = index_.n_attached() * block_bytes,
          .host_bytes = host_bytes,
          .host_limit_bytes = host_.slots.n_slots() * block_bytes,
          .file_bytes = file_.slots.n_used() * block_bytes,
          .file_limit_bytes = file_.limit_bytes(),
          .index_bytes = index_.memory_bytes()};
}

}  // namespace pumice
