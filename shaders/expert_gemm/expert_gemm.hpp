// The products of ExpertLinear for many rows: pairs of a row and one of its experts, sorted by
// expert on the device, are multiplied in tiles by gemm's kernels, as rows of a matrix are. So the
// weights of an expert are read once for each of its tiles, and not for each of its pairs. Gale et
// al., "MegaBlocks: Efficient Sparse Training with Mixture-of-Experts", 2023, compute as much.
//
// The grid is that of the worst routing, of which workgroups without pairs end at once: nothing is
// read back, and what is recorded is the same for every routing.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "format/weight_type.hpp"
#include "shaders/common/linear_args.hpp"
#include "shaders/common/math.hpp"
#include "shaders/gemm/gemm_variants.hpp"
#include "vk/memory.hpp"
#include "vk/pipeline.hpp"
#include "vk/recorder.hpp"

namespace pumice::ops {

class ExpertGemm {
 public:
  /// The experts that some rows take, and memory for what is made of them: tiles, of which each has
  /// pairs of one expert, and the pairs, expert by expert and by rising row within one.
  struct Groups {
    vk::BufferRange range;  ///< range_bytes() at least
    uint32_t rows = 0;      ///< at most 65535
    uint32_t n_used = 0;    ///< at most kMostUsedExperts
    uint32_t n_experts = 0;

    uint32_t n_pairs() const { return rows * n_used; }
  };

  /// When this is faster than ExpertLinear, and of which tiles (expert_gemm.tune).
  struct Tuning {
    uint32_t least_rows = 0;
    uint32_t pairs_of_expert = 0;  ///< on average, at least; not 0
    uint32_t tile_fill = 0;        ///< percent of a larger tile's rows that these must be

    bool suits(uint32_t rows, uint32_t n_used, uint32_t n_experts) const {
      return rows >= least_rows && uint64_t{rows} * n_used >= uint64_t{pairs_of_expert} * n_experts;
    }
  };
  static Tuning tuned(const TuningTarget& target);
  /// Whether there are so many pairs that this is faster than ExpertLinear.
  bool suits(uint32_t rows, uint32_t n_used, uint32_t n_experts) const {
    return tuning_.suits(rows, n_used, n_experts);
  }
  /// Words that Groups::range may need for each pair, where it suits.
  static constexpr uint32_t kWordsPerPair = 5;

  /// Declare the pipelines for weights of these types (repeats are fine) of the first variant of
  /// gemm that computes in `math` and all of them can run, for each of its tiles; with kI8, as with
  /// kAuto. `path` is tuned_x_route() of the device except in tests. Errors, saying of each variant
  /// why it cannot run: kSelfTestFailed if one would, were it not rejected; kInvalidArgument.
  static Result<ExpertGemm> plan(vk::PipelineLibrary& pipelines,
                                 std::span<const WeightType* const> types, Math math, XRoute path);
  /// The same of these variants.
  static Result<ExpertGemm> plan(vk::PipelineLibrary& pipelines,
                                 std::span<const WeightType* const> types,
                                 std::span<const GemmVariant> candidates);

  /// Fill groups.range from `routes`, Route's of its rows.
  void record_groups(vk::Recorder& recorder, const vk::BufferRange& routes,
                     const Groups& groups) const;

  /// See ExpertLinear::Args, which has the same.
  struct Args {
    const WeightMatrix& weights;  ///< of a planned type: n_experts times the rows of an expert
    vk::BufferRange x;
    uint32_t x_stride = 0;
    uint32_t x_rank_stride = 0;
    const Groups& groups;
    vk::BufferRange scratch = {};  ///< x_bytes() of the rows of x
    vk::BufferRange bias = {};     ///< float, one for each row of weights; may be empty
    vk::BufferRange y;
    uint32_t y_stride = 0;
  };

  /// What Args::scratch must hold for so many rows of x, which are pairs if there is one for each.
  uint64_t x_bytes(uint64_t x_rows, uint32_t n_cols) const {
    return x_form_bytes(x_form_, x_rows, n_cols);
  }

  /// One dispatch per part of the weights, after one that makes x what the kernel reads, or several where one would exceed the recorder's segment
  /// limit: of fewer tiles of pairs each, and where one is too much of fewer outputs. A pair's
  /// results are the same bits in any of them, whatever the other pairs are, as long as the tile's
  /// size (tile_rows) is the same.
  void record(vk::Recorder& recorder, const Args& args) const;

  Math math() const { return math_; }
  uint32_t tile_rows(const Groups& groups) const { return tiles_[choose_tile(groups)].rows; }
  /// What groups.range holds: tiles of three words, then a word for each pair.
  uint32_t n_tiles(const Groups& groups) const;
  uint64_t range_bytes(const Groups& groups) const;

 private:
  size_t choose_tile(const Groups& groups) const;
  /// args.x is in the form that the kernel reads.
  void record_products(vk::Recorder& recorder, const Args& args) const;

  Math math_ = Math::kF32;
  XForm x_form_ = XForm::kFloats;
  std::optional<QuantizeX> quantize_x_;  // to that form
  Tuning tuning_;
  std::vector<GemmTile> tiles_;
  const vk::Pipeline* group_routes_ = nullptr;
  std::map<const WeightType*, std::vector<const vk::Pipeline*>> pipelines_;  // by tile
};

}  // namespace pumice::ops
