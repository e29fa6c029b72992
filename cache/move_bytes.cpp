#include "cache/move_bytes.hpp"

#include <algorithm>

namespace pumice {
namespace {

/// Pages that `move_bytes` moves at once.
constexpr size_t kMovedPages = 32;

/// A page that is not on the device.
Status read_tiers(KvCache& cache, const EntryPlaces& places, std::span<std::byte> bytes) {
  if (places.host_slot == kNowhere) return cache.file_tier().read(places.file_slot, bytes);
  std::ranges::copy(cache.host_slot(places.host_slot), bytes.begin());
  return {};
}

/// Where bytes are, or are to be, is known of pages whose bytes still move.
void check_landed(const KvCache& cache) {
  PUMICE_DEBUG_CHECK(!cache.moves_bytes(), "pages are read or written while their bytes move");
}

}  // namespace

ByteMover::ByteMover(KvCache& cache, const Transfers& transfers, size_t max_items, Logger log)
    : cache_(&cache),
      demotions_(transfers.demotions),
      saves_(transfers.saves),
      restores_(transfers.restores),
      max_items_(max_items),
      log_(std::move(log)) {
  PUMICE_CHECK(max_items > 0, "pieces of no pages");
}

bool ByteMover::good(const Status& status) const {
  if (!status.ok()) log_.warning("{}", status.error().message);
  return status.ok();
}

ByteMover::Piece ByteMover::next() {
  PUMICE_CHECK(items_.empty(), "the piece before this one is not finished");
  while (n_demoted_ < demotions_.size()) demote(n_demoted_++);
  kind_ = Piece::Kind::kRead;
  while (n_saved_ < saves_.size() && items_.size() < max_items_) add_save(n_saved_++);
  if (items_.empty()) {
    kind_ = Piece::Kind::kWrite;
    while (n_restored_ < restores_.size() && items_.size() < max_items_) add_restore(n_restored_++);
  }
  if (items_.empty()) kind_ = Piece::Kind::kDone;
  return {kind_, items_};
}

void ByteMover::finish_piece(const Status& status) {
  PUMICE_CHECK(!items_.empty(), "no piece is to be finished");
  const bool moved = good(status);
  for (size_t i = 0; i < items_.size(); ++i) {
    const size_t index = indices_[i];
    if (kind_ == Piece::Kind::kWrite) {
      if (!moved) failures_.restores.push_back(index);
    } else if (!moved || !store_saved(saves_[index], items_[i].bytes)) {
      failures_.saves.push_back(index);
    }
  }
  items_.clear();
  indices_.clear();
}

void ByteMover::demote(size_t index) {
  const SlotDemotion& demotion = demotions_[index];
  const std::span<const std::byte> bytes = cache_->host_slot(demotion.host_slot);
  if (bytes.empty() || !good(cache_->file_tier().write(demotion.file_slot, bytes))) {
    failures_.demotions.push_back(index);
  }
}

/// The bytes of the next item, where they are not in host memory.
std::span<std::byte> ByteMover::buffer() {
  const size_t page_bytes = cache_->options().page_bytes;
  if (buffers_.empty()) {
    buffers_.resize(std::min(max_items_, std::max(saves_.size(), restores_.size())) * page_bytes);
  }
  return std::span(buffers_).subspan(items_.size() * page_bytes, page_bytes);
}

void ByteMover::add_save(size_t index) {
  const PageSave& save = saves_[index];
  const std::span<std::byte> bytes =
      save.tier == Tier::kHost ? cache_->host_slot(save.slot) : buffer();
  if (bytes.empty()) {
    log_.warning("no host memory is left for cached context");
    failures_.saves.push_back(index);
    return;
  }
  items_.push_back({save.source, bytes});
  indices_.push_back(index);
}

/// What was read of the device is where it shall be.
bool ByteMover::store_saved(const PageSave& save, std::span<const std::byte> bytes) {
  return save.tier == Tier::kHost || good(cache_->file_tier().write(save.slot, bytes));
}

void ByteMover::add_restore(size_t index) {
  const PageRestore& restore = restores_[index];
  const bool in_host = restore.tier == Tier::kHost;
  const std::span<std::byte> bytes = in_host ? cache_->host_slot(restore.slot) : buffer();
  if (bytes.empty() || (!in_host && !good(cache_->file_tier().read(restore.slot, bytes)))) {
    failures_.restores.push_back(index);
    return;
  }
  items_.push_back({restore.target, bytes});
  indices_.push_back(index);
}

TransferFailures move_bytes(KvCache& cache, const Transfers& transfers, PageStore& store,
                            const Logger& log) {
  ByteMover mover(cache, transfers, kMovedPages, log);
  while (true) {
    const ByteMover::Piece piece = mover.next();
    if (piece.kind == ByteMover::Piece::Kind::kDone) return mover.take_failures();
    mover.finish_piece(piece.kind == ByteMover::Piece::Kind::kRead ? store.read(piece.items)
                                                                   : store.write(piece.items));
  }
}

Status read_prefix(KvCache& cache, const KvCache::CachedPrefix& prefix, PageStore& store,
                   std::span<std::byte> bytes) {
  check_landed(cache);
  const uint64_t page_bytes = cache.options().page_bytes;
  PUMICE_CHECK(bytes.size() == prefix.pages.size() * page_bytes, "room for each page");
  std::vector<PageStore::Item> on_device;
  for (size_t i = 0; i < prefix.pages.size(); ++i) {
    const std::span<std::byte> page = bytes.subspan(i * page_bytes, page_bytes);
    if (prefix.pages[i].page != kNoPage) {
      on_device.push_back({prefix.pages[i].page, page});
    } else {
      PUMICE_TRY_STATUS(read_tiers(cache, prefix.pages[i], page));
    }
  }
  return store.read(on_device);
}

Status adopt_prefix(KvCache& cache, const HashedPrompt& prompt, uint32_t n_tokens,
                    std::span<const std::byte> bytes, PageStore& store, const Logger& log) {
  check_landed(cache);
  PUMICE_TRY(KvCache::Adoption adoption, cache.adopt(prompt, n_tokens));
  const uint64_t page_bytes = cache.options().page_bytes;
  PUMICE_CHECK(bytes.size() == adoption.n_pages() * page_bytes, "bytes for each page");
  // What is in the pages that were given up for it goes to other tiers first.
  const Transfers transfers = cache.take_transfers();
  (void)cache.finish_transfers(transfers.batch, move_bytes(cache, transfers, store, log));

  std::vector<std::byte> buffer(std::min(adoption.n_pages(), kMovedPages) * page_bytes);
  std::vector<PageStore::Item> items;
  for (size_t i = 0; i < adoption.n_pages(); ++i) {
    const PageId target = adoption.target(i);
    if (target == kNoPage) continue;
    const auto page = std::span(buffer).subspan(items.size() * page_bytes, page_bytes);
    std::ranges::copy(bytes.subspan(i * page_bytes, page_bytes), page.begin());
    items.push_back({target, page});
    if (items.size() < kMovedPages) continue;
    PUMICE_TRY_STATUS(store.write(items));
    items.clear();
  }
  PUMICE_TRY_STATUS(store.write(items));
  cache.finish(std::move(adoption));
  return {};
}

Status save_prompt_cache(KvCache& cache, PageStore& store) {
  check_landed(cache);
  FileTier& file = cache.file_tier();
  if (!file.slots.exists()) {
    return make_error(ErrorCode::kInvalidArgument, "there is no prompt cache file to save to");
  }
  const std::vector<KvCache::CachedBlock> blocks = cache.cached_blocks();
  const uint64_t page_bytes = file.binding().page_bytes;
  const uint64_t max_pages = file.limit_bytes() / page_bytes;
  size_t n_blocks = 0;
  for (uint64_t n_pages = 0; n_blocks < blocks.size(); ++n_blocks) {
    n_pages +=
        static_cast<uint64_t>(std::ranges::count_if(blocks[n_blocks].pages, &EntryPlaces::any));
    if (n_pages > max_pages) break;
  }
  PUMICE_TRY(auto writer, PromptCacheWriter::create(file.path(), file.binding(),
                                                    static_cast<uint32_t>(n_blocks)));
  // False: it is damaged where it is.
  const auto read = [&](const EntryPlaces& places, std::span<std::byte> bytes) -> Result<bool> {
    if (places.page == kNoPage) return read_tiers(cache, places, bytes).ok();
    const PageStore::Item item{places.page, bytes};
    PUMICE_TRY_STATUS(store.read({&item, 1}));
    return true;
  };
  const PageKinds& kinds = cache.kinds();
  std::vector<std::byte> bytes(kinds.size() * page_bytes);
  std::vector<uint32_t> records(n_blocks, PromptCacheFile::kNoParent);  // kNoParent: left out
  for (size_t i = 0; i < n_blocks; ++i) {
    const KvCache::CachedBlock& block = blocks[i];
    uint32_t parent = PromptCacheFile::kNoParent;
    if (block.parent != KvCache::CachedBlock::kNone) {
      parent = records[block.parent];
      if (parent == PromptCacheFile::kNoParent) continue;
    }
    KindMask written = 0;
    size_t end = 0;
    for (uint32_t g = 0; g < kinds.size(); ++g) {
      const std::span<std::byte> page = std::span(bytes).subspan(end, page_bytes);
      if (!block.pages[g].any()) continue;
      PUMICE_TRY(const bool is_whole, read(block.pages[g], page));
      if (!is_whole) continue;
      written |= KindMask{1} << g;
      end += page_bytes;
    }
    // A damaged page is left out; without those of full kinds, all that follows it.
    if ((written & kinds.full()) != kinds.full()) continue;
    records[i] = writer.n_records();
    PUMICE_TRY_STATUS(writer.add(parent, block.tokens, written, std::span(bytes).first(end)));
  }
  return writer.finish();
}

}  // namespace pumice
