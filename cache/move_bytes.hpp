// Carrying out what KvCache wants moved between the device, host memory and the prompt cache file.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "base/result.hpp"
#include "cache/kv_cache.hpp"
#include "cache/transfers.hpp"

namespace pumice {

/// The bytes of pages on the device. Calls block until done.
class PageStore {
 public:
  struct Item {
    PageId page = kNoPage;
    std::span<std::byte> bytes;  ///< page_bytes of them
  };

  virtual ~PageStore() = default;
  virtual Status read(std::span<const Item> items) = 0;
  virtual Status write(std::span<const Item> items) = 0;
};

/// Carries out a batch's demotions, saves and restores piece by piece, in their order; its copies
/// are the caller's. Work on host memory and files happens inside `next` and `finish_piece`, in the
/// caller's thread; what the device must do comes as pieces, which the caller may carry out while
/// it does other things. Batches are carried out one after another, in the order taken. What fails
/// is logged and kept for KvCache::finish_transfers: a full disk or a damaged file costs time only.
class ByteMover {
 public:
  /// Copies what it needs of `transfers`; the cache must outlive it. Pieces have at most
  /// `max_items` pages, at least 1; so many pages of host memory are taken for what goes to a file
  /// or comes from one.
  ByteMover(KvCache& cache, const Transfers& transfers, size_t max_items, Logger log = {});

  struct Piece {
    enum class Kind {
      kRead,   ///< fill the items' bytes from their pages
      kWrite,  ///< fill the pages from the bytes
      kDone,   ///< nothing is left; no items
    };
    Kind kind = Kind::kDone;
    std::span<const PageStore::Item> items;  ///< these and their bytes: until finish_piece
  };

  /// The next piece for the device; the one before must be finished.
  Piece next();
  /// The last piece was carried out to its end, or was not: then each of its items has failed.
  void finish_piece(const Status& status);

  /// What has failed so far, once.
  TransferFailures take_failures() { return std::exchange(failures_, {}); }

 private:
  bool good(const Status& status) const;
  void demote(size_t index);
  void add_save(size_t index);
  void add_restore(size_t index);
  bool store_saved(const PageSave& save, std::span<const std::byte> bytes);
  std::span<std::byte> buffer();

  KvCache* cache_;
  std::vector<SlotDemotion> demotions_;
  std::vector<PageSave> saves_;
  std::vector<PageRestore> restores_;
  size_t max_items_;
  Logger log_;
  size_t n_demoted_ = 0;
  size_t n_saved_ = 0;     // done, failed or in the open piece
  size_t n_restored_ = 0;  // the same
  Piece::Kind kind_ = Piece::Kind::kDone;
  std::vector<PageStore::Item> items_;  // of the open piece
  std::vector<size_t> indices_;         // of its items, in saves_ or restores_
  std::vector<std::byte> buffers_;
  TransferFailures failures_;
};

/// The same at once, with a device that is waited for.
TransferFailures move_bytes(KvCache& cache, const Transfers& transfers, PageStore& store,
                            const Logger& log = {});

/// The pages of a prefix, wherever they are, page_bytes each. No transfers are under way. Errors:
/// those of the store; kBadFile (a damaged prompt cache file).
Status read_prefix(KvCache& cache, const KvCache::CachedPrefix& prefix, PageStore& store,
                   std::span<std::byte> bytes);

/// Make the first `n_tokens` of a prompt findable, by such bytes. No transfers are under way, and
/// what the store writes comes behind all work that the device was given. Errors, with nothing of
/// it findable: KvCache::adopt's and the store's.
Status adopt_prefix(KvCache& cache, const HashedPrompt& prompt, uint32_t n_tokens,
                    std::span<const std::byte> bytes, PageStore& store, const Logger& log = {});

/// Replace the prompt cache file by all that is cached now under no salt, on the device and in the
/// tiers. No transfers are under way, and what the store reads comes behind all work that the
/// device was given. Errors: kInvalidArgument without such a file, kInternal, the store's; the old
/// file then stays.
Status save_prompt_cache(KvCache& cache, PageStore& store);

}  // namespace pumice
