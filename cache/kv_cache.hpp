// The KV cache as the scheduler sees it: which pages hold a sequence, which prefix need not be
// computed, and what the engine must move before a step. No device and no clock; it moves
// no bytes itself (cache/move_bytes.hpp does), but owns the host memory and the file they go to.
//
// Life of a sequence (calls in this order; `?` may be left out, `*` repeated):
//
//     HashedPrompt prompt = cache.hash_prompt(tokens, salt)   once, when the request arrives
//     begin(prompt)                        when first scheduled: looks up, takes pages
//     ( reserve(id, n)?                    pages for the positions of the next step
//       plan(id, n)?                       a step will compute positions up to n
//       take_transfers / finish_transfers  the engine moves bytes, before the step
//       append(id, sampled tokens)?
//       commit(id, n)                      a step has computed positions [0, n)
//       rewind(id, n)? )*                  positions from n on are forgotten: refused drafts
//     release(id)  or  prompt = suspend(id)  end at any point; suspend gives everything back for a
//                                            later begin (preemption, a failed step)
//
// A step is a transaction. What it plans (`begin`, `reserve`) is undone by `suspend` for sequences
// it began, `shrink` for pages it added and `unplan` for what it planned; what it computed becomes
// visible to others only by `commit`. A call that fails changes nothing at all. Undoing does not
// bring back pages whose cached content was given up to make room, nor their place in the order of
// use.
//
// Content is named by chained hashes and always compared before it is used: a collision costs time,
// never truth. Of a prompt of n tokens at most n − 1 are taken from the cache, so that there is a
// row to sample from.
//
// What a sequence keeps is of one or more kinds (cache/page_kind.hpp), all in pages of one pool. A hit is
// the longest length that every kind can restore:
//   - full kinds need the blocks of [0, L); a window the blocks of positions that position L sees;
//     a recurrent kind a state kept at L. A last block that is filled partly is copied in paged
//     kinds; with a recurrent kind it must end at L, where its state was kept.
//   - A window's entry is kNoPage once no position that is still to be computed sees it (and none
//     that `rewind` may go back to): `commit` gives the page back, and it stays findable. So a
//     window needs `reserve` before every step, prefill too.
//   - A recurrent step reads the state at its first position and writes another page, so that a
//     state once written never changes: undoing a step drops a page, and keeping a state copies
//     nothing. States are kept at edges of the prompt (KeptStates: the last one and the one where
//     it left what was known), and where a sequence ends or is suspended. They are
//     never taken from running sequences' needs: they wait in the order of use like all pages.
// What to give up: pages are of equal size, so the value of one is the tokens it saves times how
// often. The order of use stands for it: everything of a sequence is given up from its end, a state
// just before the blocks that only it made worth keeping; a kept state moves up with the blocks
// of its prefix whenever a sequence that used them ends.
//
// Not thread-safe; one owner. Nothing here blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/host_memory.hpp"
#include "base/result.hpp"
#include "cache/block_hash.hpp"
#include "cache/file_tier.hpp"
#include "cache/hashed_prompt.hpp"
#include "cache/miss_memory.hpp"
#include "cache/page_kind.hpp"
#include "cache/page_pool.hpp"
#include "cache/prefix_index.hpp"
#include "cache/slot_tier.hpp"
#include "cache/transfers.hpp"

namespace pumice {

struct KvCacheOptions {
  uint32_t n_pages = 0;  ///< of the device, at first; kUnlimitedPages for simulations
  uint32_t block_tokens = 16;
  std::vector<PageKind> kinds = {};  ///< none: one full kind
  KeptStates kept_states = KeptStates::kEdgeAndBranch;
  uint32_t rewind_tokens = 0;  ///< most positions that `rewind` takes back
  /// Prompts are given as one 64-bit key a block (`hash_keys`) instead of tokens.
  bool keyed = false;
  bool reuse = true;  ///< false: nothing is ever found again
  ModelFingerprint model = {};
  uint64_t layout = 0;                ///< of KV bytes in a page; opaque, for the prompt cache file
  uint32_t hash_bits = 128;           ///< fewer, to test collisions
  uint64_t page_bytes = 0;            ///< of one page, of any kind; needed with tiers
  uint64_t host_bytes = 0;            ///< host memory for evicted pages; 0: none
  HostAllocator host_allocator = {};  ///< where that comes from
};

/// What one kind cost and brought.
struct KindStats {
  uint64_t shortened = 0;         ///< hits that were shorter because of it
  uint64_t shortened_tokens = 0;  ///< by so much
  uint64_t evicted_blocks = 0;
  uint64_t kept_states = 0;  ///< of a recurrent kind
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
  std::vector<KindStats> kinds;
};

/// All bytes the cache answers for.
struct CacheLedger {
  uint64_t device_bytes = 0;                     ///< of the pool
  uint64_t device_used_bytes = 0;                ///< of those, in use by sequences
  uint64_t device_cached_bytes = 0;              ///< of those, findable, in use or not
  std::vector<uint64_t> kind_cached_bytes = {};  ///< the same by kind
  uint64_t host_bytes = 0;                       ///< taken from the system for evicted pages
  uint64_t host_limit_bytes = 0;
  uint64_t file_bytes = 0;  ///< of evicted and loaded pages on disk
  uint64_t file_limit_bytes = 0;
  uint64_t index_bytes = 0;  ///< of the index itself, in host memory
};

class KvCache {
 public:
  explicit KvCache(const KvCacheOptions& options);

  const KvCacheOptions& options() const { return options_; }
  const PageKinds& kinds() const { return kinds_; }

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
  /// What `begin` would have to take from, were some sequences to end first.
  struct Room {
    uint64_t free_pages = 0;
    /// Of full kinds, of what would be found: pages that other sequences use, so that they need
    /// not be free.
    uint64_t shared_pages = 0;
  };
  Room room(const HashedPrompt& prompt, std::span<const SequenceId> ended = {}) const;

  // ---- sequences

  /// Find the longest cached prefix and take pages for positions [0, max(cached + 1,
  /// reserve_tokens)); of windows and recurrent kinds for [0, cached + 1) only, since they are
  /// given back and taken step by step. On success `prompt` is moved from. Errors: kDoesNotFit when
  /// too few pages are free.
  Result<SequenceId> begin(HashedPrompt& prompt, uint32_t reserve_tokens = 0);

  /// Have pages for positions [0, n_tokens), and one for the state behind them. Errors:
  /// kDoesNotFit.
  Status reserve(SequenceId id, uint32_t n_tokens);
  /// The most positions for which `reserve` has nothing to take.
  uint32_t reserved_tokens(SequenceId id) const;
  /// Pages that `reserve` would have to take, to ask before acting.
  uint32_t pages_lacking(SequenceId id, uint32_t n_tokens) const;
  /// Give back pages that positions [0, max(n_tokens, computed)) do not need.
  void shrink(SequenceId id, uint32_t n_tokens);
  /// A step will compute positions up to `n_tokens`, from where the last planned one ends. Needed
  /// where there are recurrent kinds; `reserve` has been called for it.
  void plan(SequenceId id, uint32_t n_tokens);
  /// Steps that were to compute positions behind `n_tokens` will not.
  void unplan(SequenceId id, uint32_t n_tokens);
  /// Where a step should end so that a state can be kept: the next such position behind
  /// `position`, UINT32_MAX if there is none.
  uint32_t next_kept_state(SequenceId id, uint32_t position) const;

  /// Tokens that are known now, behind those known before: sampled ones.
  void append(SequenceId id, std::span<const uint32_t> tokens);
  /// A step has written positions [0, computed_tokens); full blocks among them whose tokens are
  /// known can be shared from now on. The sequence's transfers must be finished.
  void commit(SequenceId id, uint32_t computed_tokens);
  /// What is committed of a sequence can be found to its last position from now on, the part of its
  /// last block and the states there included; that part until the sequence fills the block.
  void keep_end(SequenceId id) { index_end(sequence(id)); }
  /// Forget tokens and positions from `n_tokens` on, computed and planned ones; no step of the
  /// sequence may be under way. Back to what is committed it cannot fail and takes no page. What was
  /// shared stays findable. Copies may have to be made before the next commit. Errors, with nothing
  /// changed: kInvalidArgument, naming the kind, where a window's pages have been given back (at
  /// most rewind_tokens are kept for certain) or a recurrent kind has no state at `n_tokens` (it has
  /// that of the commit before, with rewind_tokens, and those that were kept); kDoesNotFit.
  Status rewind(SequenceId id, uint32_t n_tokens);

  /// End a sequence at any point. What was committed stays findable until the memory is needed,
  /// a last partly filled block included.
  void release(SequenceId id);
  /// End it and get its prompt back, with all tokens known so far and no hash computed twice.
  HashedPrompt suspend(SequenceId id);

  /// Position p is in page blocks(id, kind)[p / block_tokens]; kNoPage behind a window. Grows at its
  /// end only, while the sequence lives, and shrinks by `shrink` and `rewind` only. Empty for a
  /// recurrent kind. Valid until the next call that changes the sequence.
  std::span<const PageId> blocks(SequenceId id, uint32_t kind = 0) const;
  /// The page of a recurrent kind that holds, or will hold, the state behind `position` positions:
  /// a committed or planned end of a step. kNoPage at 0: the state in which everything begins.
  PageId state(SequenceId id, uint32_t kind, uint32_t position) const;
  uint32_t computed_tokens(SequenceId id) const;
  /// The tokens known of it: its prompt's and what was appended. Empty in a keyed cache. Valid
  /// until the next call that changes the sequence.
  std::span<const uint32_t> tokens(SequenceId id) const;
  const CacheReport& report(SequenceId id) const;

  // ---- moving bytes

  /// What the calls since the last take want moved. Ask after the last `begin` or `reserve` of a
  /// step; carry it out after all earlier steps have ended (or behind them in the device's order)
  /// and before this one; answer by `finish_transfers`, in the order taken and before `commit`. An
  /// empty one needs no answer.
  Transfers take_transfers();
  /// The batch was carried out but for `failures`. The sequences returned hold pages without
  /// content: suspend or release them. What they were to reuse is taken out of `stats` again.
  std::vector<SequenceId> finish_transfers(TransferBatch batch,
                                           const TransferFailures& failures = {});
  /// Some of what the cache wants moved has not been: taken or not, it is not answered yet. Places
  /// then name pages whose bytes are not there.
  bool moves_bytes() const;
  /// Memory of a host slot, page_bytes long. Empty: the system has no more.
  std::span<std::byte> host_slot(uint32_t slot);

  /// The device's memory is gone: what is cached there and nowhere else is forgotten, what host
  /// memory or the prompt cache file has stays findable. No sequence may be live. Transfers that
  /// were not reported done have failed and are not answered any more.
  void forget_device();

  // ---- its size; not of an unlimited cache
  //
  // Pages can be added at any time. To take the last ones away, while no step is planned and no
  // transfers are open, and no sequence begins or takes pages (any may end):
  //   give_up(n)                           what was used least recently goes
  //   take_transfers / finish_transfers    to the tiers, where there are any
  //   ( take_moves(n) / finish_moves )*    until there are none: the engine copies what stays
  //   resize(n)

  /// Give up contents until `n_pages` pages could hold all that is left. False, with nothing
  /// changed: more are in use by sequences.
  bool give_up(uint32_t n_pages);
  /// Pages behind the first `n_pages` whose bytes are to be copied into those, at most `most` of
  /// them. No two moves have a page in common.
  std::vector<PageMove> take_moves(uint32_t n_pages, size_t most);
  /// What was taken last was copied, all of it, or was not.
  void finish_moves(bool copied);
  /// False, with nothing changed: a page that would go is in use or has a content.
  bool resize(uint32_t n_pages);

  // ---- the prompt cache file (prompts without a salt, of the cache's model)

  /// Make the file a tier: find what it holds, if it exists, and let evicted pages go to disk, as
  /// many as `limit_bytes` hold. Errors: kBadFile with the reason why it is not used,
  /// kInvalidArgument; the cache then goes on without one.
  Status open_prompt_cache(const std::filesystem::path& path, uint64_t limit_bytes);
  FileTier& file_tier() { return file_; }

  /// A block that would be worth saving (save_prompt_cache in cache/move_bytes.hpp).
  struct CachedBlock {
    static constexpr size_t kNone = SIZE_MAX;
    size_t parent = kNone;             ///< earlier in the list
    std::span<const uint32_t> tokens;  ///< fewer than block_tokens: a partial block
    std::vector<EntryPlaces> pages;    ///< by kind: in any place that is not kNo…
  };
  /// All that is findable under no salt, parents first, and what leads to it. Valid until the next
  /// call.
  std::vector<CachedBlock> cached_blocks() const { return cached_blocks(options_.model); }
  /// The same of another model's.
  std::vector<CachedBlock> cached_blocks(const ModelFingerprint& model) const;

  // ---- prefixes that are taken elsewhere and brought back (read_prefix and adopt_prefix in
  // cache/move_bytes.hpp)

  /// What a prompt would begin with, as `begin` would find it now.
  struct CachedPrefix {
    uint32_t n_tokens = 0;
    std::vector<EntryPlaces> pages;  ///< in the order of PageKinds::prefix_entries(n_tokens)
  };
  /// Changes nothing. Places are valid until the next call.
  CachedPrefix cached_prefix(const HashedPrompt& prompt) const;

  /// Room on the device for the pages of a prefix that was computed elsewhere; while it lives, what
  /// is there of the prefix is not given up. Given back when it ends. No other call but those of
  /// transfers comes before that.
  class Adoption {
   public:
    Adoption(Adoption&& other) noexcept
        : cache_(std::exchange(other.cache_, nullptr)),
          nodes_(std::move(other.nodes_)),
          entries_(std::move(other.entries_)) {}
    Adoption& operator=(Adoption&&) = delete;
    ~Adoption() {
      if (cache_ != nullptr) cache_->give_back(*this);
    }

    /// Pages in the order of PageKinds::prefix_entries.
    size_t n_pages() const { return entries_.size(); }
    /// Where its bytes go, after the cache's transfers; kNoPage: it is there already.
    PageId target(size_t i) const { return entries_[i].is_new ? entries_[i].page : kNoPage; }

   private:
    friend class KvCache;
    struct Entry {
      EntryId entry = kNoEntry;
      PageId page = kNoPage;  // held, or taken if it is new
      Tier tier = Tier::kHost;
      uint32_t slot = kNowhere;  // held
      bool is_new = false;
    };
    explicit Adoption(KvCache& cache) : cache_(&cache) {}

    KvCache* cache_;
    std::vector<NodeId> nodes_;  // referenced: the root, then one a block
    std::vector<Entry> entries_;
  };
  /// Of the first `n_tokens` of a prompt. Errors, with nothing changed: kDoesNotFit,
  /// kInvalidArgument in a cache that finds nothing again.
  Result<Adoption> adopt(const HashedPrompt& prompt, uint32_t n_tokens);
  /// The bytes of all targets have been written: the prefix is findable.
  void finish(Adoption adoption);

  // ---- a prefix store (cache/prefix_store.hpp): prompts without a salt, of the cache's model

  /// Remember from now on which pages of full blocks become findable, the latest of them.
  void note_new_pages();
  bool has_new_pages() const { return !new_entries_.empty(); }
  /// A page on the device, and what its bytes stand for.
  struct NewPage {
    BlockHash hash;
    uint32_t kind = 0;
    PageId page = kNoPage;  ///< holds them until the next call that takes pages
    std::vector<uint32_t> tokens;
  };
  /// At most `most` of those that are wanted and still there; the others are forgotten.
  std::vector<NewPage> take_new_pages(
      size_t most, const std::function<bool(const BlockHash&, uint32_t kind)>& is_wanted);
  /// By full block that a prompt could take from a cache: the kinds whose bytes are somewhere.
  std::vector<KindMask> known_kinds(const HashedPrompt& prompt) const;
  struct HostPage {
    uint32_t block = 0;
    uint32_t kind = 0;
    std::span<const std::byte> bytes;
  };
  /// Put pages of a prompt that were computed elsewhere, in the order of blocks, into host memory:
  /// findable from now on, until something else needs the memory. What is there already stays, and
  /// what there is no room for is left out. How many were put there.
  uint32_t adopt_to_host(const HashedPrompt& prompt, std::span<const HostPage> pages);

  /// What files and saved sequences must agree with to be of use here.
  PromptCacheBinding binding() const;

  // ---- the whole

  uint32_t n_pages() const { return pool_.n_pages(); }
  /// Pages that can be taken now, cached ones included. An unlimited cache says kUnlimitedPages.
  uint32_t n_free_pages() const;
  const CacheStats& stats() const { return stats_; }
  CacheLedger ledger() const;
  const PagePool& pool() const { return pool_; }

  /// Pages, nodes, sequences and tiers agree. For tests: reads everything. Errors:
  /// kInternal naming what is wrong.
  Status check_integrity() const;

 private:
  struct State {
    uint32_t position = 0;
    PageId page = kNoPage;
  };
  /// What a sequence has of one kind.
  struct Held {
    std::vector<PageId> blocks;  // of a paged kind: the page of each block
    uint32_t first = 0;          // those before are kNoPage
    // Of a recurrent kind: rising positions; one is computed_tokens, at most one before it is kept
    // for `rewind`, those behind it are planned.
    std::vector<State> states;
    PageId spare = kNoPage;  // for the next step to write
  };
  struct Sequence {
    bool live = false;
    HashedPrompt prompt;     // and what was generated
    std::vector<Held> held;  // by kind
    NodeId tip = kNoNode;    // of the last full block that is in the index; referenced
    uint32_t n_indexed = 0;  // full blocks in the index
    uint32_t computed_tokens = 0;
    uint32_t n_transfers = 0;  // unfinished
    bool lost = false;         // a transfer failed: pages without content
    NodeId resumed = kNoNode;  // partial block whose state it goes on from; referenced until it has
    bool settled = false;      // what it began with was brought
    uint32_t branch = 0;       // edge where it left what was known
    uint32_t prompt_edge = 0;  // the last before its prompt's end
    CacheReport report;
  };
  struct Match {
    NodeId root = kNoNode;
    std::vector<NodeId> chain;
    PrefixIndex::ChildMatch tail;
    size_t n_known = 0;  // full blocks whose content is known, restorable or not
    uint32_t shortened_by = kNoKind;
    uint32_t others_tokens = 0;
    MissReason miss = MissReason::kNoMatch;
  };
  /// What is known of a prompt's beginning.
  struct Known {
    const HashedPrompt& prompt;
    NodeId root = kNoNode;
    std::span<const NodeId> chain;
    bool want_tail = true;
  };
  struct Hit {
    size_t n_blocks = 0;
    PrefixIndex::ChildMatch tail;
    uint32_t n_tokens = 0;
  };
  struct Batch {
    Transfers transfers;
    bool taken = false;
  };
  struct NewEntry {
    EntryId entry = kNoEntry;
    BlockHash hash;
  };
  struct HostTier {
    SlotTier slots;
    std::vector<HostMemory> memory;  // by slot, as they come into use
  };

  uint32_t blocks_for(uint64_t n_tokens) const;
  Sequence& sequence(SequenceId id);
  const Sequence& sequence(SequenceId id) const;

  void hash_blocks(HashedPrompt& prompt) const;
  Match find(const HashedPrompt& prompt, bool want_tail = true) const;
  void shorten(const Known& known, Match& match) const;
  Hit longest(const Known& known, KindMask kinds) const;
  PrefixIndex::ChildMatch tail_of(const Known& known, size_t n_blocks, KindMask kinds) const;
  uint32_t matched_tokens(const Match& match) const;
  MissReason explain(const HashedPrompt& prompt, const Match& match) const;
  CacheReport report_of(const HashedPrompt& prompt, const Match& match) const;
  void count_begun(const Sequence& begun, bool undo);
  void take_blocks(SequenceId id, const Match& match, uint32_t reserve_tokens);
  uint32_t end_block(uint32_t kind, uint32_t cached_tokens, uint32_t reserve_tokens) const;
  Status check_room(const Match& match, uint32_t reserve_tokens) const;
  PageId best_copy(EntryId entry) const;
  bool is_empty(PageId page) const { return pool_.references(page) == 0 && !pool_.cached(page); }
  bool in_use(PageId page) const { return page != kNoPage && pool_.references(page) > 0; }

  PageId take_page();
  void evict(PageId page);
  bool save_to_host(EntryId entry, PageId page);
  void save_to_file(EntryId entry, PageId page);
  uint32_t place_in_file(EntryId entry);
  void leave_host(EntryId entry, uint32_t slot);
  void forget_slot(EntryId entry, Tier tier);
  void remember_evicted(EntryId entry);
  SlotTier& slots(Tier tier) { return tier == Tier::kHost ? host_.slots : file_.slots; }
  std::pair<Tier, uint32_t> nearest_slot(EntryId entry) const;
  void restore(SequenceId id, EntryId entry, PageId target, bool whole);
  void copy(SequenceId id, uint32_t kind, PageId source, PageId target, uint32_t n_tokens);

  void attach(EntryId entry, PageId page);
  void note_new(const Sequence& owner, NodeId node, uint32_t kind);
  bool is_pending(uint32_t host_slot) const;
  bool put_in_host(EntryId entry, std::span<const std::byte> bytes);
  void index_filled_blocks(Sequence& filled);
  void index_end(Sequence& ended);
  NodeId index_partial_block(Sequence& ended, std::span<const uint32_t> content);
  void settle(Sequence& begun);
  void keep_states(Sequence& kept, NodeId node);
  uint32_t next_kept_state(const Sequence& asked, uint32_t position) const;
  void flip(Sequence& committed, uint32_t kind);
  void slide(Sequence& committed, uint32_t kind);
  void give_back_state(Held& held, PageId page);
  void drop_planned(Held& held, uint32_t n_tokens);
  Result<PageId> state_to_rewind(const Sequence& rewound, uint32_t kind, uint32_t n_tokens) const;
  NodeId node_of_block(const Sequence& owner, uint32_t n_blocks) const;
  void rewind_blocks(SequenceId id, uint32_t kind, uint32_t n_tokens, PageId target);
  void drop_copies(PageId page);
  void give_back_all(const Sequence& ended);
  void touch_states(NodeId node);
  HashedPrompt end(SequenceId id);
  void drop_transfers(SequenceId id);
  void uncache(PageId page);
  void hold(Adoption::Entry& held);
  void give_back(Adoption& adoption);

  Batch& open_batch();
  std::vector<SequenceId> finish(Transfers transfers, const TransferFailures& failures);

  Status check_references() const;
  Status check_nodes() const;
  Status check_sequence(SequenceId id) const;
  Status check_blocks(SequenceId id, uint32_t kind) const;
  Status check_states(SequenceId id, uint32_t kind) const;

  KvCacheOptions options_;
  PageKinds kinds_;
  uint32_t block_words_;
  BlockHasher hasher_;
  PagePool pool_;
  PrefixIndex index_;
  MissMemory memory_;
  HostTier host_;
  FileTier file_;
  std::vector<Sequence> sequences_;
  std::vector<SequenceId> unused_sequences_;
  std::deque<Batch> batches_;  // oldest first; only the last may be open
  TransferBatch next_batch_ = 1;
  std::vector<PageMove> moves_;  // under way; their targets are held
  bool notes_new_pages_ = false;
  std::deque<NewEntry> new_entries_;  // oldest first
  CacheStats stats_;
};

}  // namespace pumice
