#include "cache/move_bytes.hpp"

#include <algorithm>
#include <vector>

namespace pumice {
namespace {

/// Blocks in flight between device and file at once.
constexpr size_t kFileBlocks = 8;

class Mover {
 public:
  Mover(KvCache& cache, const Transfers& transfers, BlockStore& store, const Logger& log)
      : cache_(cache), transfers_(transfers), store_(store), log_(log) {}

  TransferFailures run() {
    demote();
    save_to_host();
    save_to_file();
    restore_from_host();
    restore_from_file();
    return std::move(failures_);
  }

 private:
  bool good(const Status& status) const {
    if (!status.ok()) log_.warning("{}", status.error().message);
    return status.ok();
  }

  void demote() {
    for (size_t i = 0; i < transfers_.demotions.size(); ++i) {
      const SlotDemotion& demotion = transfers_.demotions[i];
      const std::span<const std::byte> bytes = cache_.host_slot(demotion.host_slot);
      if (bytes.empty() || !good(cache_.file_tier().write(demotion.file_slot, bytes))) {
        failures_.demotions.push_back(i);
      }
    }
  }

  std::span<std::byte> buffer(size_t i) {
    const size_t block_bytes = cache_.options().block_bytes;
    buffers_.resize(kFileBlocks * block_bytes);
    return std::span(buffers_).subspan(i * block_bytes, block_bytes);
  }

  void save_to_host() {
    std::vector<BlockStore::Item> items;
    std::vector<size_t> indices;
    for (size_t i = 0; i < transfers_.saves.size(); ++i) {
      const BlockSave& save = transfers_.saves[i];
      if (save.tier != Tier::kHost) continue;
      const std::span<std::byte> bytes = cache_.host_slot(save.slot);
      if (bytes.empty()) {
        log_.warning("no host memory is left for cached context");
        failures_.saves.push_back(i);
        continue;
      }
      items.push_back({save.source, bytes});
      indices.push_back(i);
    }
    if (items.empty() || good(store_.read(items))) return;
    failures_.saves.insert(failures_.saves.end(), indices.begin(), indices.end());
  }

  void save_to_file() {
    for_file_blocks(transfers_.saves, [&](std::span<const size_t> indices) {
      std::vector<BlockStore::Item> items;
      for (const size_t i : indices) {
        items.push_back({transfers_.saves[i].source, buffer(items.size())});
      }
      const bool read = good(store_.read(items));
      for (size_t i = 0; i < items.size(); ++i) {
        if (read &&
            good(cache_.file_tier().write(transfers_.saves[indices[i]].slot, items[i].bytes))) {
          continue;
        }
        failures_.saves.push_back(indices[i]);
      }
    });
  }

  void restore_from_host() {
    std::vector<BlockStore::Item> items;
    std::vector<size_t> indices;
    for (size_t i = 0; i < transfers_.restores.size(); ++i) {
      const BlockRestore& restore = transfers_.restores[i];
      if (restore.tier != Tier::kHost) continue;
      items.push_back({restore.target, cache_.host_slot(restore.slot)});
      indices.push_back(i);
    }
    if (!items.empty() && !good(store_.write(items))) failures_.restores = indices;
  }

  void restore_from_file() {
    for_file_blocks(transfers_.restores, [&](std::span<const size_t> indices) {
      std::vector<BlockStore::Item> items;
      std::vector<size_t> sent;
      for (const size_t i : indices) {
        const BlockRestore& restore = transfers_.restores[i];
        const std::span<std::byte> bytes = buffer(items.size());
        if (good(cache_.file_tier().read(restore.slot, bytes))) {
          items.push_back({restore.target, bytes});
          sent.push_back(i);
        } else {
          failures_.restores.push_back(i);
        }
      }
      if (items.empty() || good(store_.write(items))) return;
      failures_.restores.insert(failures_.restores.end(), sent.begin(), sent.end());
    });
  }

  /// Those of `all` that are about the file, a few indices at a time.
  template <typename T, typename F>
  void for_file_blocks(const std::vector<T>& all, const F& f) {
    std::vector<size_t> indices;
    for (size_t i = 0; i <= all.size(); ++i) {
      if (i < all.size() && all[i].tier == Tier::kFile) indices.push_back(i);
      if (indices.size() < kFileBlocks && i < all.size()) continue;
      if (!indices.empty()) f(std::span<const size_t>(indices));
      indices.clear();
    }
  }

  KvCache& cache_;
  const Transfers& transfers_;
  BlockStore& store_;
  const Logger& log_;
  TransferFailures failures_;
  std::vector<std::byte> buffers_;
};

}  // namespace

TransferFailures move_bytes(KvCache& cache, const Transfers& transfers, BlockStore& store,
                            const Logger& log) {
  return Mover(cache, transfers, store, log).run();
}

Status save_prompt_cache(KvCache& cache, BlockStore& store) {
  FileTier& file = cache.file_tier();
  if (!file.slots.exists()) {
    return make_error(ErrorCode::kInvalidArgument, "there is no prompt cache file to save to");
  }
  const std::vector<KvCache::CachedBlock> blocks = cache.cached_blocks();
  const uint64_t page_bytes = file.binding().block_bytes;
  const uint64_t max_pages = file.limit_bytes() / page_bytes;
  size_t n_blocks = 0;
  for (uint64_t n_pages = 0; n_blocks < blocks.size(); ++n_blocks) {
    n_pages +=
        static_cast<uint64_t>(std::ranges::count_if(blocks[n_blocks].pages, &PagePlaces::any));
    if (n_pages > max_pages) break;
  }
  PUMICE_TRY(auto writer, PromptCacheWriter::create(file.path(), file.binding(),
                                                    static_cast<uint32_t>(n_blocks)));
  const auto read = [&](const PagePlaces& places, std::span<std::byte> bytes) -> Status {
    if (places.block != kNoBlock) {
      const BlockStore::Item item{places.block, bytes};
      return store.read({&item, 1});
    }
    if (places.host_slot == kNowhere) return file.read(places.file_slot, bytes);
    std::ranges::copy(cache.host_slot(places.host_slot), bytes.begin());
    return {};
  };
  const CacheGroups& groups = cache.groups();
  std::vector<std::byte> bytes(groups.size() * page_bytes);
  std::vector<uint32_t> records(n_blocks, PromptCacheFile::kNoParent);  // kNoParent: left out
  for (size_t i = 0; i < n_blocks; ++i) {
    const KvCache::CachedBlock& block = blocks[i];
    uint32_t parent = PromptCacheFile::kNoParent;
    if (block.parent != KvCache::CachedBlock::kNone) {
      parent = records[block.parent];
      if (parent == PromptCacheFile::kNoParent) continue;
    }
    GroupMask written = 0;
    size_t end = 0;
    for (uint32_t g = 0; g < groups.size(); ++g) {
      const std::span<std::byte> page = std::span(bytes).subspan(end, page_bytes);
      if (!block.pages[g].any() || !read(block.pages[g], page).ok()) continue;
      written |= GroupMask{1} << g;
      end += page_bytes;
    }
    // A damaged page is left out; without those of full groups, all that follows it.
    if ((written & groups.full()) != groups.full()) continue;
    records[i] = writer.n_records();
    PUMICE_TRY_STATUS(writer.add(parent, block.tokens, written, std::span(bytes).first(end)));
  }
  return writer.finish();
}

}  // namespace pumice
