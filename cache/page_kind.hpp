// What a sequence keeps between steps, in kinds: a model declares them, the cache keeps each in
// pages of equal size, one kind's share of one block of tokens a page.
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

enum class StateForm : uint8_t { kFull, kLatent, kWindow, kRecurrent };
std::string_view state_form_name(StateForm form);  ///< "full", "latent", "window", "recurrent"

struct PageKind {
  std::string name = "kv";
  StateForm form = StateForm::kFull;
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

/// A bit for each kind, the first lowest.
using KindMask = uint32_t;
inline constexpr uint32_t kMaxKinds = 16;
inline constexpr uint32_t kNoKind = UINT32_MAX;

/// The kinds of one cache, and how many pages they ask for.
class PageKinds {
 public:
  /// Those `check` has passed; none: one full kind. `rewind_tokens`: windows keep so many more
  /// positions.
  PageKinds(const std::vector<PageKind>& kinds, uint32_t block_tokens, uint32_t rewind_tokens);

  /// Errors: kInvalidArgument, naming the kind.
  static Status check(const std::vector<PageKind>& kinds);

  uint32_t size() const { return static_cast<uint32_t>(kinds_.size()); }
  const PageKind& operator[](uint32_t kind) const { return kinds_[kind]; }
  bool is_window(uint32_t kind) const { return has(windows_, kind); }
  bool is_recurrent(uint32_t kind) const { return has(recurrent_, kind); }

  KindMask all() const { return full_ | windows_ | recurrent_; }
  KindMask full() const { return full_; }
  KindMask windows() const { return windows_; }
  KindMask recurrent() const { return recurrent_; }
  KindMask paged() const { return full_ | windows_; }  ///< with a page for each block
  static bool has(KindMask mask, uint32_t kind) { return (mask >> kind & 1) != 0; }
  /// One full kind: what most models are.
  bool plain() const { return kinds_.size() == 1 && full_ == 1; }

  /// First block that a kind must have for a sequence to go on at `position`. A block that is
  /// partly filled then is always one of them: it goes on being filled.
  uint32_t first_block(uint32_t kind, uint32_t position) const;
  /// The same wherever `rewind` may go back to from `position`.
  uint32_t first_kept_block(uint32_t kind, uint32_t position) const;

  /// Most pages that a sequence of `n_tokens` needs at once, with one step of `step_tokens` under
  /// way and nothing shared.
  uint64_t pages_for(uint64_t n_tokens, uint32_t step_tokens) const;

  /// One kind's share of one block.
  struct PrefixEntry {
    uint32_t block = 0;
    uint32_t kind = 0;
  };
  /// All that a sequence needs to go on at `n_tokens`, in order of blocks, then of kinds.
  std::vector<PrefixEntry> prefix_entries(uint32_t n_tokens) const;

  /// Names the forms and windows, in order.
  uint64_t signature() const;

 private:
  std::vector<PageKind> kinds_;
  KindMask full_ = 0;
  KindMask windows_ = 0;
  KindMask recurrent_ = 0;
  uint32_t block_tokens_;
  uint32_t rewind_tokens_;
};

}  // namespace pumice
