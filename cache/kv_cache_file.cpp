// KvCache: what the prompt cache file brings, and what would be worth writing to one.
#include <utility>

#include "cache/kv_cache.hpp"

namespace pumice {

PromptCacheBinding KvCache::binding() const {
  return {.model = options_.model,
          .layout = options_.layout,
          .block_tokens = options_.block_tokens,
          .page_bytes = options_.page_bytes,
          .n_kinds = kinds_.size(),
          .kinds = kinds_.signature()};
}

Status KvCache::open_prompt_cache(const std::filesystem::path& path, uint64_t limit_bytes) {
  PUMICE_CHECK(!file_.slots.exists(), "a second prompt cache file");
  if (options_.keyed || !options_.reuse || options_.page_bytes == 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "a prompt cache file needs a cache of tokens, with reuse, and page_bytes");
  }
  PUMICE_TRY(file_, FileTier::open(path, binding(), limit_bytes));
  const PromptCacheFile* opened = file_.opened();
  if (opened == nullptr || opened->n_records() == 0) return {};
  const BlockHash root_hash = hasher_.root(options_.model, "");
  const NodeId root = index_.find_or_add_root(options_.model, "", root_hash);
  index_.refer(root);
  const uint32_t n_records = opened->n_records();
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
  // Used last is given up last: children, which come later, before their parents. There are no more
  // pages than slots.
  for (uint32_t i = n_records; i-- > 0;) {
    for (uint32_t g = kinds_.size(); g-- > 0;) {
      if (!PageKinds::has(opened->record(i).kinds, g)) continue;
      const EntryId entry = index_.entry(nodes[i], g);
      if (index_.places(entry).file_slot != kNowhere) continue;
      const SlotTier::Placed placed = file_.slots.put(entry);
      index_.set_file_slot(entry, placed.slot);
      file_.adopt(placed.slot, opened->page(i, g));
    }
    index_.unrefer(nodes[i]);
  }
  index_.unrefer(root);
  return {};
}

std::vector<KvCache::CachedBlock> KvCache::cached_blocks(const ModelFingerprint& model) const {
  std::vector<CachedBlock> blocks;
  const NodeId root = index_.find_root(model, "");
  if (root == kNoNode) return blocks;
  std::vector<std::pair<NodeId, size_t>> open = {{root, CachedBlock::kNone}};
  while (!open.empty()) {
    const auto [parent, position] = open.back();
    open.pop_back();
    for (const NodeId id : index_.children(parent)) {
      // Nothing behind a block that full kinds lack can be used.
      if (!index_.node(id).holds(kinds_.full())) continue;
      open.emplace_back(id, blocks.size());
      std::vector<EntryPlaces> pages;
      for (uint32_t g = 0; g < kinds_.size(); ++g) {
        pages.push_back(index_.places(index_.entry(id, g)));
      }
      blocks.push_back({position, index_.content(id), std::move(pages)});
    }
  }
  return blocks;
}

}  // namespace pumice
