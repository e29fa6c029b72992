#include "tools/serve/fleet/kv_view.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace pumice::serve {
namespace {

struct SeenBlock {
  uint64_t id = 0;
  BlockHash hash;
  size_t parent = KvCache::CachedBlock::kNone;
  uint32_t depth = 0;
  std::vector<uint32_t> runs;  // by kind: how many blocks up to here have it without a gap
  bool is_useful = false;
  bool on_device = true;
  uint32_t adapter = 0;
};

/// Of the model without an adapter, then with each.
struct AllBlocks {
  std::vector<KvCache::CachedBlock> blocks;
  std::vector<uint32_t> adapters;  // of each
  std::vector<BlockHash> roots;    // by adapter
};

AllBlocks all_blocks(const KvCache& cache, const BlockHasher& hasher,
                     const std::vector<KvAdapter>& adapters) {
  AllBlocks all;
  for (uint32_t adapter = 0; adapter <= adapters.size(); ++adapter) {
    const ModelFingerprint& model =
        adapter == 0 ? cache.options().model : adapters[adapter - 1].fingerprint;
    all.roots.push_back(hasher.root(model, ""));
    const size_t first = all.blocks.size();
    for (KvCache::CachedBlock& block : cache.cached_blocks(model)) {
      if (block.parent != KvCache::CachedBlock::kNone) block.parent += first;
      all.blocks.push_back(std::move(block));
    }
    all.adapters.resize(all.blocks.size(), adapter);
  }
  return all;
}

bool can_resume(const PageKinds& kinds, const SeenBlock& block,
                const std::vector<EntryPlaces>& pages, uint32_t block_tokens) {
  const uint32_t n_blocks = block.depth + 1;
  for (uint32_t g = 0; g < kinds.size(); ++g) {
    if (kinds.is_recurrent(g) && !pages[g].any()) return false;
    const uint32_t first = kinds.first_block(g, n_blocks * block_tokens);
    if (kinds.is_window(g) && first + block.runs[g] < n_blocks) return false;
  }
  return true;
}

}  // namespace

std::vector<KvEvent> KvView::look(const KvCache& cache) {
  const PageKinds& kinds = cache.kinds();
  const uint32_t block_tokens = cache.options().block_tokens;
  const BlockHasher hasher(cache.options().hash_bits);
  const AllBlocks all = all_blocks(cache, hasher, adapters_);
  const std::vector<KvCache::CachedBlock>& blocks = all.blocks;
  std::vector<SeenBlock> seen(blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i) {
    const KvCache::CachedBlock& block = blocks[i];
    SeenBlock& one = seen[i];
    one.parent = block.parent;
    one.adapter = all.adapters[i];
    if (block.tokens.size() != block_tokens) continue;  // nobody's parent
    const SeenBlock* const parent =
        block.parent == KvCache::CachedBlock::kNone ? nullptr : &seen[block.parent];
    one.hash =
        hasher.child(parent == nullptr ? all.roots[one.adapter] : parent->hash, block.tokens);
    one.id = one.hash.low;
    one.depth = parent == nullptr ? 0 : parent->depth + 1;
    one.runs.resize(kinds.size());
    for (uint32_t g = 0; g < kinds.size(); ++g) {
      if (block.pages[g].any()) one.runs[g] = (parent == nullptr ? 0 : parent->runs[g]) + 1;
      if (!PageKinds::has(kinds.recurrent(), g) && !kinds.is_window(g)) {
        one.on_device = one.on_device && block.pages[g].page != kNoPage;
      }
    }
    one.is_useful = can_resume(kinds, one, block.pages, block_tokens);
  }
  for (size_t i = blocks.size(); i-- > 0;) {
    if (seen[i].is_useful && seen[i].parent != KvCache::CachedBlock::kNone) {
      seen[seen[i].parent].is_useful = true;
    }
  }

  std::unordered_map<uint64_t, bool> now;
  for (const SeenBlock& block : seen) {
    if (block.is_useful) now.emplace(block.id, block.on_device);
  }
  std::vector<KvEvent> events;
  if (now.empty() && !known_.empty()) {
    events.push_back({.kind = KvEvent::Kind::kCleared});
    known_.clear();
    return events;
  }
  for (const bool on_device : {true, false}) {
    KvEvent removed{.kind = KvEvent::Kind::kRemoved, .on_device = on_device};
    for (const auto& [id, where] : known_) {
      const auto it = now.find(id);
      const bool stays = it != now.end() && it->second == where;
      if (where == on_device && !stays) removed.blocks.push_back(id);
    }
    std::ranges::sort(removed.blocks);
    if (!removed.blocks.empty()) events.push_back(std::move(removed));
  }
  std::vector<std::optional<size_t>> run_of(blocks.size());  // that ends with it, in events
  for (size_t i = 0; i < blocks.size(); ++i) {
    const SeenBlock& block = seen[i];
    if (!block.is_useful) continue;
    const auto before = known_.find(block.id);
    if (before != known_.end() && before->second == block.on_device) continue;
    const bool has_parent = block.parent != KvCache::CachedBlock::kNone;
    std::optional<size_t> run;
    if (has_parent) run = std::exchange(run_of[block.parent], std::nullopt);
    if (!run || events[*run].on_device != block.on_device) {
      run = events.size();
      events.push_back({.parent = has_parent ? seen[block.parent].id : 0,
                        .has_parent = has_parent,
                        .block_tokens = block_tokens,
                        .on_device = block.on_device,
                        .adapter = block.adapter});
      if (block.adapter != 0) events.back().adapter_name = adapters_[block.adapter - 1].name;
    }
    KvEvent& stored = events[*run];
    stored.blocks.push_back(block.id);
    stored.tokens.insert(stored.tokens.end(), blocks[i].tokens.begin(), blocks[i].tokens.end());
    run_of[i] = run;
  }
  known_ = std::move(now);
  return events;
}

}  // namespace pumice::serve
