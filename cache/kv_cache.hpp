// The KV cache as the scheduler sees it: which blocks hold a sequence, which prefix need not be
// computed, and what the engine must move before a step. No device and no clock; it moves
// no bytes itself (cache/move_bytes.hpp does), but owns the host memory and the file they go to.
//
// Life of a sequence (calls in this order; `?` may be left out, `*` repeated):
//
//     HashedPrompt prompt = cache.hash_prompt(tokens, salt)   once, when the request arrives
//     begin(prompt)                        when first scheduled: looks up, takes blocks
//     ( reserve(id, n)?                    blocks for the positions of the next step
//       take_transfers / finish_transfers  the engine moves bytes, before the step
//       append(id, sampled tokens)?
//       commit(id, n) )*                   a step has computed positions [0, n)
//     release(id)  or  prompt = suspend(id)  end at any point; suspend gives everything back for a
//                                            later begin (preemption, a failed step)
//
// A step is a transaction. What it plans (`begin`, `reserve`) is undone by `suspend` for sequences
// it began and `shrink` for blocks it added; what it computed becomes visible to others only by
// `commit`. A call that fails changes nothing at all. Undoing does not bring back blocks whose
// cached content was given up to make room, nor their place in the order of use.
//
// Content is named by chained hashes and always compared before it is used: a collision costs time,
// never truth. Of a prompt of n tokens at most n − 1 are taken from the cache, so that there is a
// row to sample from.
//
// Not thread-safe; one owner. Nothing here blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "cache/block_hash.hpp"
#include "cache/block_pool.hpp"
#include "cache/file_tier.hpp"
#include "cache/hashed_prompt.hpp"
#include "cache/miss_memory.hpp"
#include "cache/prefix_index.hpp"
#include "cache/slot_tier.hpp"
#include "cache/transfers.hpp"

namespace pumice {

struct KvCacheOptions {
  uint32_t n_blocks = 0;  ///< of the device; kUnlimitedBlocks for simulations
  uint32_t block_tokens = 16;
  /// Prompts are given as one 64-bit key a block (`hash_keys`) instead of tokens.
  bool keyed = false;
  bool reuse = true;  ///< false: nothing is ever found again
  ModelFingerprint model = {};
  uint64_t layout = 0;       ///< of KV bytes in a block; opaque, for the prompt cache file
  uint32_t hash_bits = 128;  ///< fewer, to test collisions
  uint64_t block_bytes = 0;  ///< of one block; needed with tiers
  uint64_t host_bytes = 0;   ///< host memory for evicted blocks; 0: none
};

struct CacheStats {
  uint64_t queries = 0;  ///< successful begins
  uint64_t queried_tokens = 0;
  uint64_t cached_tokens = 0;
  uint64_t queried_blocks = 0;  ///< full blocks of prompts
  uint64_t matched_blocks = 0;  ///< of those, found whole
  uint64_t host_tokens = 0;
  uint64_t file_tokens = 0;
  uint64_t copied_tokens = 0;
  uint64_t evicted_blocks = 0;             ///< cached contents that left the device
  uint64_t saved_blocks = 0;               ///< of those, to host memory
  uint64_t misses[kMissReasonCount] = {};  ///< by MissReason
};

/// All bytes the cache answers for.
struct CacheLedger {
  uint64_t device_bytes = 0;         ///< of the pool
  uint64_t device_used_bytes = 0;    ///< of those, in use by sequences
  uint64_t device_cached_bytes = 0;  ///< of those, findable, in use or not
  uint64_t host_bytes = 0;           ///< taken from the system for evicted blocks
  uint64_t host_limit_bytes = 0;
  uint64_t file_bytes = 0;  ///< of evicted and loaded blocks on disk
  uint64_t file_limit_bytes = 0;
  uint64_t index_bytes = 0;  ///< of the index itself, in host memory
};

class KvCache {
 public:
  explicit KvCache(const KvCacheOptions& options);

  const KvCacheOptions& options() const { return options_; }

  // ---- prompts: pure, may be called at any time

  /// Hash a prompt's full blocks. `model` other than the cache's: an adapter, for instance.
  HashedPrompt hash_prompt(std::span<const uint32_t> tokens, std::string_view salt = {}) const;
  HashedPrompt hash_prompt(std::span<const uint32_t> tokens, std::string_view salt,
                           const ModelFingerprint& model) const;
  /// The same from given keys, one for each full block of `n_tokens` (more are ignored). Needs
  /// options().keyed.
  HashedPrompt hash_keys(std::span<const uint64_t> keys, uint32_t n_tokens,
                         std::string_view salt = {}) const;
  /// What `begin` would find now. Changes nothing, order of use included.
  CacheReport look_up(const HashedPrompt& prompt) const;

  // ---- sequences

  /// Find the longest cached prefix and take blocks for positions [0, max(cached + 1,
  /// reserve_tokens)). On success `prompt` is moved from. Errors: kDoesNotFit when too few blocks
  /// are free.
  Result<SequenceId> begin(HashedPrompt& prompt, uint32_t reserve_tokens = 0);

  /// Have blocks for positions [0, n_tokens). Errors: kDoesNotFit.
  Status reserve(SequenceId id, uint32_t n_tokens);
  /// Blocks that `reserve` would have to take, to ask before acting.
  uint32_t blocks_lacking(SequenceId id, uint32_t n_tokens) const;
  /// Give back blocks that positions [0, max(n_tokens, computed)) do not need.
  void shrink(SequenceId id, uint32_t n_tokens);

  /// Tokens that are known now, behind those known before: sampled ones.
  void append(SequenceId id, std::span<const uint32_t> tokens);
  /// A step has written positions [0, computed_tokens); full blocks among them whose tokens are
  /// known can be shared from now on. The sequence's transfers must be finished.
  void commit(SequenceId id, uint32_t computed_tokens);

  /// End a sequence at any point. What was committed stays findable until the memory is needed,
  /// a last partly filled block included.
  void release(SequenceId id);
  /// End it and get its prompt back, with all tokens known so far and no hash computed twice.
  HashedPrompt suspend(SequenceId id);

  /// Position p is in blocks(id)[p / block_tokens]. Grows at its end only, while the sequence
  /// lives, and shrinks by `shrink` only. Valid until the next call that changes the sequence.
  std::span<const BlockId> blocks(SequenceId id) const;
  uint32_t computed_tokens(SequenceId id) const;
  const CacheReport& report(SequenceId id) const;

  // ---- moving bytes

  /// What the calls since the last take want moved. Ask after the last `begin` or `reserve` of a
  /// step; carry it out after all earlier steps have ended (or behind them in the device's order)
  /// and before this one; answer by `finish_transfers`, in the order taken and before `commit`. An
  /// empty one needs no answer.
  Transfers take_transfers();
  /// The batch was carried out but for `failures`. The sequences returned hold blocks without
  /// content: suspend or release them. What they were to reuse is taken out of `stats` again.
  std::vector<SequenceId> finish_transfers(TransferBatch batch,
                                           const TransferFailures& failures = {});
  /// Memory of a host slot, block_bytes long. Empty: the system has no more.
  std::span<std::byte> host_slot(uint32_t slot);

  // ---- the prompt cache file (prompts without a salt, of the cache's model)

  /// Make the file a tier: find what it holds, if it exists, and let evicted blocks go to disk, as
  /// many as `limit_bytes` hold. Errors: kBadFile with the reason why it is not used,
  /// kInvalidArgument; the cache then goes on without one.
  Status open_prompt_cache(const std::filesystem::path& path, uint64_t limit_bytes);
  FileTier& file_tier() { return file_; }

  /// A block that would be worth saving (save_prompt_cache in cache/move_bytes.hpp).
  struct CachedBlock {
    static constexpr size_t kNone = SIZE_MAX;
    size_t parent = kNone;             ///< earlier in the list
    std::span<const uint32_t> tokens;  ///< fewer than block_tokens: a partial block
    BlockId block = kNoBlock;          ///< where its bytes are: in any that is not kNo…
    uint32_t host_slot = kNowhere;
    uint32_t file_slot = kNowhere;
  };
  /// All that is findable under no salt, parents first. Valid until the next call.
  std::vector<CachedBlock> cached_blocks() const;

  // ---- the whole

  uint32_t n_blocks() const { return pool_.n_blocks(); }
  /// Blocks that can be taken now, cached ones included. An unlimited cache says kUnlimitedBlocks.
  uint32_t n_free_blocks() const;
  const CacheStats& stats() const { return stats_; }
  CacheLedger ledger() const;
  const BlockPool& pool() const { return pool_; }

  /// Blocks, nodes, sequences and tiers agree. For tests: reads everything. Errors:
  /// kInternal naming what is wrong.
  Status check_integrity() const;

 private:
  struct Sequence {
    bool live = false;
    HashedPrompt prompt;  // and what was generated
    std::vector<BlockId> blocks;
    NodeId tip = kNoNode;    // of the last full block that is in the index; referenced
    uint32_t n_indexed = 0;  // full blocks in the index
    uint32_t computed_tokens = 0;
    uint32_t n_transfers = 0;  // unfinished
    bool lost = false;         // a transfer failed: blocks without content
    CacheReport report;
  };
  struct Match {
    NodeId root = kNoNode;
    std::vector<NodeId> chain;
    PrefixIndex::ChildMatch tail;
    MissReason miss = MissReason::kNoMatch;
  };
  struct Batch {
    Transfers transfers;
    bool taken = false;
  };
  struct HostTier {
    SlotTier slots;
    std::vector<std::unique_ptr<std::byte[]>> memory;  // by slot, as they come into use
  };

  uint32_t blocks_for(uint64_t n_tokens) const;
  Sequence& sequence(SequenceId id);
  const Sequence& sequence(SequenceId id) const;

  void hash_blocks(HashedPrompt& prompt) const;
  Match find(const HashedPrompt& prompt) const;
  MissReason explain(const HashedPrompt& prompt, const Match& match) const;
  CacheReport report_of(const HashedPrompt& prompt, const Match& match) const;
  void count_begun(const Sequence& begun);
  void uncount_begun(const Sequence& lost);
  void take_blocks(SequenceId id, const Match& match, uint32_t n_blocks);
  Status check_room(const Match& match, uint32_t n_blocks) const;
  BlockId best_copy(NodeId node) const;

  BlockId take_block();
  void evict(BlockId block);
  bool save_to_host(NodeId id, BlockId block);
  void save_to_file(NodeId id, BlockId block);
  uint32_t place_in_file(NodeId id);
  void leave_host(NodeId id, uint32_t slot);
  void forget_slot(NodeId id, Tier tier);
  void remember_evicted(const PrefixNode& node);
  SlotTier& slots(Tier tier) { return tier == Tier::kHost ? host_.slots : file_.slots; }
  std::pair<Tier, uint32_t> nearest_slot(NodeId id) const;
  void restore(SequenceId id, NodeId node, BlockId target, bool whole);
  void copy(SequenceId id, BlockId source, BlockId target, uint32_t n_tokens);

  void index_filled_blocks(Sequence& filled);
  void index_partial_block(const Sequence& ended);
  void drop_copies(const Sequence& ended);
  HashedPrompt end(SequenceId id);
  void drop_transfers(SequenceId id);
  void uncache(BlockId block);

  Batch& open_batch();
  std::vector<SequenceId> finish(const Batch& batch, const TransferFailures& failures);

  Status check_references() const;
  Status check_nodes() const;
  Status check_sequence(SequenceId id) const;

  KvCacheOptions options_;
  uint32_t block_words_;
  BlockHasher hasher_;
  BlockPool pool_;
  PrefixIndex index_;
  MissMemory memory_;
  HostTier host_;
  FileTier file_;
  std::vector<Sequence> sequences_;
  std::vector<SequenceId> unused_sequences_;
  std::deque<Batch> batches_;  // oldest first; only the last may be open
  TransferBatch next_batch_ = 1;
  CacheStats stats_;
};

}  // namespace pumice
