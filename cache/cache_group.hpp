// What a sequence keeps between steps, in groups: a model declares them, the cache keeps each in
// pages of equal size, one group's share of one block of tokens a page.
//
//   full       keys and values of all positions
//   latent     the same to the cache: other bytes (MLA)
//   window     keys and values of which a position sees only the `window_tokens` newest, its own
//              included; what is behind is given back while the sequence runs
//   recurrent  one state for all positions so far, a page as a whole: only at a position where it
//              was kept can a sequence go on from it
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace pumice {

enum class GroupKind : uint8_t { kFull, kLatent, kWindow, kRecurrent };
std::string_view group_kind_name(GroupKind kind);  ///< "full", "latent", "window", "recurrent"

struct CacheGroup {
  std::string name = "kv";
  GroupKind kind = GroupKind::kFull;
  uint32_t window_tokens = 0;  ///< of a window
};

/// At which block edges of its prompt a running sequence's states are kept. They are kept wherever
/// a sequence ends or is suspended, besides.
enum class KeptStates : uint8_t {
  kNone,
  kPromptEdge,     ///< the last before the prompt's end: the next turn goes on from there
  kBranch,         ///< where it left what was known: a prompt that many share
  kEdgeAndBranch,  ///< both; for what `pumice sim --keep-states` says of others see docs/TUNING.md
  kEveryEdge,
};

/// A bit for each group, the first lowest.
using GroupMask = uint32_t;
inline constexpr uint32_t kMaxGroups = 16;
inline constexpr uint32_t kNoGroup = UINT32_MAX;

/// The groups of one cache, and how many pages they ask for.
class CacheGroups {
 public:
  /// Those `check` has passed; none: one full group. `rewind_tokens`: windows keep so many more
  /// positions.
  CacheGroups(const std::vector<CacheGroup>& groups, uint32_t block_tokens, uint32_t rewind_tokens);

  /// Errors: kInvalidArgument, naming the group.
  static Status check(const std::vector<CacheGroup>& groups);

  uint32_t size() const { return static_cast<uint32_t>(groups_.size()); }
  const CacheGroup& operator[](uint32_t group) const { return groups_[group]; }
  bool is_window(uint32_t group) const { return has(windows_, group); }
  bool is_recurrent(uint32_t group) const { return has(recurrent_, group); }

  GroupMask all() const { return full_ | windows_ | recurrent_; }
  GroupMask full() const { return full_; }
  GroupMask windows() const { return windows_; }
  GroupMask recurrent() const { return recurrent_; }
  GroupMask paged() const { return full_ | windows_; }  ///< with a page for each block
  static bool has(GroupMask mask, uint32_t group) { return (mask >> group & 1) != 0; }
  /// One full group: what most models are.
  bool plain() const { return groups_.size() == 1 && full_ == 1; }

  /// First block that a group must have for a sequence to go on at `position`. A block that is
  /// partly filled then is always one of them: it goes on being filled.
  uint32_t first_block(uint32_t group, uint32_t position) const;
  /// The same wherever `rewind` may go back to from `position`.
  uint32_t first_kept_block(uint32_t group, uint32_t position) const;

  /// Most pages that a sequence of `n_tokens` needs at once, with one step of `step_tokens` under
  /// way and nothing shared.
  uint64_t pages_for(uint64_t n_tokens, uint32_t step_tokens) const;

  /// One group's share of one block.
  struct PrefixPage {
    uint32_t block = 0;
    uint32_t group = 0;
  };
  /// All that a sequence needs to go on at `n_tokens`, in order of blocks, then of groups.
  std::vector<PrefixPage> prefix_pages(uint32_t n_tokens) const;

  /// Names the kinds and windows, in order.
  uint64_t signature() const;

 private:
  std::vector<CacheGroup> groups_;
  GroupMask full_ = 0;
  GroupMask windows_ = 0;
  GroupMask recurrent_ = 0;
  uint32_t block_tokens_;
  uint32_t rewind_tokens_;
};

}  // namespace pumice
