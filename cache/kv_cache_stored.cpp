// KvCache: what a prefix store may have of it, and what comes from one.
#include <algorithm>

#include "cache/kv_cache.hpp"

namespace pumice {
namespace {

constexpr size_t kMostNewEntries = size_t{1} << 16;

}  // namespace

/// Only what everybody may see; a part of a block is nobody's to go on from.
void KvCache::note_new(const Sequence& owner, NodeId node, uint32_t kind) {
  if (!notes_new_pages_ || !owner.prompt.salt.empty()) return;
  if (!(owner.prompt.model == options_.model)) return;
  const PrefixNode& noted = index_.node(node);
  if (noted.n_words != block_words_) return;
  if (new_entries_.size() >= kMostNewEntries) new_entries_.pop_front();
  new_entries_.push_back({index_.entry(node, kind), noted.hash});
}

void KvCache::note_new_pages() {
  PUMICE_CHECK(!options_.keyed && options_.page_bytes > 0, "pages of tokens, with bytes");
  notes_new_pages_ = true;
}

std::vector<KvCache::NewPage> KvCache::take_new_pages(
    size_t most, const std::function<bool(const BlockHash&, uint32_t kind)>& is_wanted) {
  std::vector<NewPage> pages;
  while (!new_entries_.empty() && pages.size() < most) {
    const NewEntry entry = new_entries_.front();
    new_entries_.pop_front();
    const NodeId node = index_.node_of_entry(entry.entry);
    const uint32_t kind = index_.kind_of_entry(entry.entry);
    // It may have been given up, and its number may be another's.
    if (!index_.node(node).alive || index_.node(node).n_words != block_words_) continue;
    if (!(index_.node(node).hash == entry.hash)) continue;
    const PageId page = index_.places(entry.entry).page;
    if (page == kNoPage || !is_wanted(entry.hash, kind)) continue;
    NewPage& taken = pages.emplace_back(NewPage{entry.hash, kind, page, {}});
    std::vector<std::span<const uint32_t>> blocks;
    for (NodeId at = node; index_.node(at).n_words > 0; at = index_.node(at).parent) {
      blocks.push_back(index_.content(at));
    }
    taken.tokens.reserve(blocks.size() * block_words_);
    for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
      taken.tokens.insert(taken.tokens.end(), block->begin(), block->end());
    }
  }
  return pages;
}

std::vector<KindMask> KvCache::known_kinds(const HashedPrompt& prompt) const {
  const uint32_t n_usable = prompt.n_tokens == 0 ? 0 : prompt.n_tokens - 1;
  const size_t n_blocks = std::min<size_t>(prompt.hashes.size(), n_usable / options_.block_tokens);
  std::vector<KindMask> known(n_blocks, 0);
  const NodeId root = index_.find_root(prompt.model, prompt.salt);
  if (root == kNoNode) return known;
  std::vector<NodeId> chain;
  index_.find_chain(root, {prompt.hashes.data(), n_blocks}, prompt.content, chain, 0);
  for (size_t i = 0; i < chain.size(); ++i) known[i] = index_.node(chain[i]).held;
  return known;
}

/// A slot that something is still to be written to, or read from on its way to the file.
bool KvCache::is_pending(uint32_t host_slot) const {
  return std::ranges::any_of(batches_, [&](const Batch& batch) {
    const Transfers& transfers = batch.transfers;
    return std::ranges::any_of(transfers.saves,
                               [&](const PageSave& save) {
                                 return save.tier == Tier::kHost && save.slot == host_slot;
                               }) ||
           std::ranges::any_of(transfers.demotions, [&](const SlotDemotion& demotion) {
             return demotion.host_slot == host_slot;
           });
  });
}

/// False: there is no slot for it now.
bool KvCache::put_in_host(EntryId entry, std::span<const std::byte> bytes) {
  const SlotTier::Placed placed = host_.slots.put(entry);
  if (placed.slot == kNowhere) return false;
  if (placed.given_up != kNoEntry) forget_slot(placed.given_up, Tier::kHost);
  const std::span<std::byte> memory =
      is_pending(placed.slot) ? std::span<std::byte>() : host_slot(placed.slot);
  if (memory.empty()) {
    host_.slots.drop(placed.slot);
    return false;
  }
  std::ranges::copy(bytes, memory.begin());
  index_.set_host_slot(entry, placed.slot);
  return true;
}

uint32_t KvCache::adopt_to_host(const HashedPrompt& prompt, std::span<const HostPage> pages) {
  if (!options_.reuse || pages.empty()) return 0;
  pages = pages.first(std::min<size_t>(pages.size(), host_.slots.n_slots()));
  std::vector<NodeId> nodes = {index_.find_or_add_root(prompt.model, prompt.salt, prompt.root)};
  index_.refer(nodes.back());
  const uint32_t n_blocks = pages.empty() ? 0 : pages.back().block + 1;
  PUMICE_CHECK(n_blocks <= prompt.hashes.size(), "pages of more blocks than the prompt has");
  for (uint32_t i = 0; i < n_blocks; ++i) {
    const auto content =
        std::span<const uint32_t>(prompt.content).subspan(size_t{i} * block_words_, block_words_);
    NodeId node = index_.find(prompt.hashes[i], nodes.back(), content);
    if (node == kNoNode) node = index_.add(prompt.hashes[i], nodes.back(), content);
    index_.refer(node);
    nodes.push_back(node);
  }
  uint32_t n_put = 0;
  // Used last is given up last: the beginning of a prefix.
  for (auto page = pages.rbegin(); page != pages.rend(); ++page) {
    PUMICE_CHECK(page->bytes.size() == options_.page_bytes, "a page is page_bytes long");
    const EntryId entry = index_.entry(nodes[page->block + size_t{1}], page->kind);
    if (!index_.places(entry).any() && put_in_host(entry, page->bytes)) ++n_put;
  }
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) index_.unrefer(*node);
  return n_put;
}

}  // namespace pumice
