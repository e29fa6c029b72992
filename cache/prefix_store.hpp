// A folder of computed prefixes that any number of processes share, on one machine or through a file
// system that several mount: a file for each page (prefix_store_file.hpp). No locks: a file comes
// into its place whole, is never changed, and may go at any time; who reads it verifies its tokens
// and its checksum. The folder is kept below a limit by removing what was used longest ago, by
// whoever writes. Only prefixes without a salt go there: a salt is a secret between users.
//
// Two threads of the store's own do all that touches files, one that reads and one that writes;
// callers never wait for a disk or a server. They end with the store, which writes what it had
// accepted first.
//
// Any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "base/result.hpp"
#include "cache/block_hash.hpp"
#include "cache/page_kind.hpp"
#include "cache/prompt_cache_file.hpp"

namespace pumice {

struct PrefixStoreOptions {
  std::filesystem::path folder;
  uint64_t limit_bytes = 0;  ///< of all files of stores there, whatever they are bound to
  PromptCacheBinding binding;
  /// Bytes that wait to be written at most; what comes beyond is not stored.
  uint64_t most_waiting_bytes = uint64_t{256} << 20;
  uint64_t most_read_bytes = UINT64_MAX;  ///< of one prefix
  Logger logger = {};
};

struct PrefixStoreStats {
  uint64_t read_pages = 0, read_bytes = 0;
  uint64_t written_pages = 0, written_bytes = 0;
  uint64_t dropped_pages = 0;  ///< not written: too many waited, or the disk refused
  uint64_t damaged_files = 0;  ///< found and removed
  uint64_t foreign_files = 0;  ///< found and left alone
  uint64_t removed_files = 0;  ///< to make room
  uint64_t bytes = 0;          ///< in the folder, as far as is known
};

class PrefixStore {
 public:
  /// Makes the folder if it is missing. Errors: kBadFile, kInvalidArgument (a limit below two
  /// pages).
  static Result<std::unique_ptr<PrefixStore>> open(const PrefixStoreOptions& options,
                                                   PageKinds kinds);
  ~PrefixStore();
  PrefixStore(const PrefixStore&) = delete;
  PrefixStore& operator=(const PrefixStore&) = delete;

  // ---- writing

  /// Whether it is not known to be there.
  bool wants(const BlockHash& hash, uint32_t kind) const;
  struct Page {
    BlockHash hash;
    uint32_t kind = 0;
    std::vector<uint32_t> tokens;  ///< up to the block's last
    std::vector<std::byte> bytes;
  };
  /// Soon. False: too much waits already.
  bool write(Page page);
  /// Until all that was accepted is written, or was dropped.
  void flush();

  // ---- reading

  /// Pages of a prefix that were read, in the order of blocks.
  struct Prefix {
    struct Page {
      uint32_t block = 0;
      uint32_t kind = 0;
      std::vector<std::byte> bytes;
    };
    std::vector<Page> pages;
  };
  /// A prefix that is being read.
  class Reading {
   public:
    bool done() const { return done_.load(std::memory_order_acquire); }
    /// Once done.
    Prefix& prefix() { return prefix_; }
    /// Nobody waits for it any more.
    void cancel() { cancelled_.store(true, std::memory_order_relaxed); }

   private:
    friend class PrefixStore;
    std::vector<uint32_t> tokens_;  // of the full blocks that a prompt can take
    std::vector<BlockHash> hashes_;
    std::vector<KindMask> known_;
    std::function<void()> wake_;
    Prefix prefix_;
    std::atomic<bool> done_ = false;
    std::atomic<bool> cancelled_ = false;
  };
  /// What it takes to go on at the longest position that what is `known` (by block: the kinds that a
  /// cache has) and the store can restore together, besides what is known. `tokens` are those of
  /// `hashes.size()` blocks. `wake` is called from a thread of the store once it is done.
  std::shared_ptr<Reading> read(std::vector<uint32_t> tokens, std::vector<BlockHash> hashes,
                                std::vector<KindMask> known, std::function<void()> wake);

  PrefixStoreStats stats() const;

 private:
  PrefixStore(PrefixStoreOptions options, PageKinds kinds);

  void read_until_closed();
  void read_prefix(Reading& reading);
  void write_until_closed();
  void write_page(const Page& page);
  void look_around(uint64_t most_bytes);
  void note_bad(const std::filesystem::path& path, bool is_ours);
  std::filesystem::path path_of(const BlockHash& hash, uint32_t kind) const;
  void warn_once(bool& warned, const std::string& line);
  void remember(uint64_t key);

  const PrefixStoreOptions options_;
  const PageKinds kinds_;
  const std::filesystem::path folder_;  // of the binding

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool closes_ = false;
  std::deque<Page> to_write_;
  uint64_t waiting_bytes_ = 0;
  bool writing_ = false;
  std::deque<std::shared_ptr<Reading>> to_read_;
  std::unordered_set<uint64_t> known_;  // stored_page_key of files that were there
  PrefixStoreStats stats_;
  bool warned_of_damage_ = false, warned_of_foreign_ = false, warned_of_writes_ = false;
  // Of the writing thread.
  uint64_t written_since_look_ = 0;
  uint64_t n_names_ = 0;

  std::thread reader_, writer_;
};

}  // namespace pumice
