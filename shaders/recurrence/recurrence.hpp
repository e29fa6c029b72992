// Linear recurrences with a matrix for each head, S [value_dim][key_dim], row after row:
//
//   Δ = softplus(step + bias)    S ← exp(a Δ) S    S ← S + u kᵀ    y = S q + d v
//
// where u = Δ v (Mamba-2: Dao and Gu, "Transformers are SSMs", 2024, with k = B, q = C), or with a
// delta u = sigmoid(beta) (v − S k) (Yang et al., "Gated Delta Networks", 2024). A head has one Δ
// and one a, or a Δ for each key (Kimi Team, "Kimi Linear", 2025), whose column decays by it, or a
// Δ for each value and an a for each number of S (Gu and Dao, "Mamba", 2023).
#pragma once

#include "base/result.hpp"
#include "shaders/common/state_item.h"
#include "vk/memory.hpp"
#include "vk/pipeline.hpp"
#include "vk/recorder.hpp"

namespace pumice::ops {

class Recurrence {
 public:
  static constexpr uint32_t kMostKeyDim = 256;
  static constexpr uint32_t kMostStateKeyDim = 64;  ///< where each number decays by itself

  /// What of a head's state decays alike.
  enum class Decay {
    kHead,   ///< all of it
    kKey,    ///< a key's column; only with a delta
    kState,  ///< nothing else; only without a delta
  };

  struct Shape {
    uint32_t n_heads = 0;
    uint32_t n_key_heads = 0;  ///< of q and k; divides n_heads
    uint32_t key_dim = 0;      ///< at most kMostKeyDim, or kMostStateKeyDim
    uint32_t value_dim = 0;
    bool by_remainder = false;  ///< head h reads key head h mod n_key_heads, not neighbours one
    bool delta = false;
    bool has_d = false;
    Decay decay = Decay::kHead;

    bool operator==(const Shape&) const = default;
    uint64_t state_floats() const { return uint64_t{n_heads} * key_dim * value_dim; }
    /// Of a head.
    uint32_t n_steps() const {
      if (decay == Decay::kHead) return 1;
      return decay == Decay::kKey ? key_dim : value_dim;
    }
    uint64_t a_floats() const { return decay == Decay::kState ? state_floats() : n_heads; }
  };

  /// How rows become sums. One after another, the kernel's own form; or pieces of them at a time,
  /// in which a step's work is products of matrices: for many rows. Both compute the same but for
  /// rounding. States that decay number by number have no pieces: what rows leave of each other is
  /// then another number for each element of the state, so that no product has it as a factor. For
  /// these there is one kernel, 10 to 12 times as fast as the other one row after another (CPU
  /// time, lavapipe 22.3 and 25.0, 1,024 columns of 16 keys, 64 and 512 rows; a single row 5 to 6
  /// times).
  struct Tuning {
    uint32_t piece_rows = 0;  ///< a multiple of 4 up to kMostPieceRows; 0: one row after another
    uint32_t least_rows = 1;  ///< of the longest item: with fewer one row after another too
  };
  static constexpr uint32_t kMostPieceRows = 32;

  /// Floats of rows with heads side by side, and how far it is from row to row.
  struct Rows {
    vk::BufferRange range;
    uint32_t stride = 0;
  };
  /// Rows times each stride below 2^32.
  struct Args {
    Rows q;          ///< [n_key_heads][key_dim]
    Rows k;          ///< likewise
    Rows v;          ///< [n_heads][value_dim]
    Rows step;       ///< [n_heads][n_steps]
    Rows beta = {};  ///< [n_heads], with a delta
    Rows y;          ///< [n_heads][value_dim], apart from all others
    float q_scale = 1;
    float k_scale = 1;
    vk::BufferRange a;     ///< float [n_heads], or of states as a state
    vk::BufferRange bias;  ///< float [n_heads][n_steps]
    vk::BufferRange d =
        {};  ///< float [n_heads], or of states [n_heads][value_dim], if there is one
    /// StateItem [n_items]: the rows of each sequence, and its pages. A state is float
    /// [n_heads][value_dim][key_dim].
    vk::BufferRange items;
    uint32_t n_items = 0;             ///< at most 65535
    vk::BufferRange states;           ///< stands for all pages
    uint32_t state_offset_bytes = 0;  ///< from a page's start
    uint32_t rows = 0;                ///< of all items
    uint32_t item_rows = 0;           ///< of the longest
  };

  /// Pieces that the device has the shared memory for (recurrence.tune), unless the shape has no
  /// such form or a self-test has rejected the kernel.
  static Tuning tuned(const vk::PipelineLibrary& pipelines, const Shape& shape);
  /// What a workgroup needs for pieces of so many rows.
  static uint32_t shared_bytes(const Shape& shape, uint32_t piece_rows);

  /// Errors: kInvalidArgument for a shape or a tuning out of range. A row's bits depend on its
  /// sequence's rows before it alone where rows come one after another: with Tuning{}.
  static Result<Recurrence> plan(vk::PipelineLibrary& pipelines, const Shape& shape,
                                 const Tuning& tuning);

  void record(vk::Recorder& recorder, const Args& args) const;

 private:
  vk::Cost cost(const Args& args, uint64_t n_heads, uint64_t item_rows) const;

  Shape shape_;
  Tuning tuning_;
  const vk::Pipeline* pipeline_ = nullptr;
  uint32_t columns_ = 0;                     // of a workgroup
  const vk::Pipeline* in_pieces_ = nullptr;  // of many rows; may be null
};

}  // namespace pumice::ops
