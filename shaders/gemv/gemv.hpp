// y = x · Wᵀ for 1 to 8 rows of x (decoding): every weight is read once, which is the floor.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "shaders/common/linear_args.hpp"
#include "shaders/common/math.hpp"
#include "shaders/common/tuning.hpp"
#include "shaders/quantize_x/quantize_x.hpp"
#include "vk/pipeline.hpp"

namespace pumice::ops {

enum class GemvKernel {
  kPortable,   ///< gemv.comp: needs nothing of subgroups
  kSubgroup,   ///< gemv_subgroup.comp: for GPUs, subgroups of a required size
  kBroadcast,  ///< gemv_broadcast.comp: XRoute::kBroadcast
  kPlanes,  ///< kSubgroup by integer dot products, of x as XForm::kPlanes; not of every type (gemv.tune)
};
/// As in module names: "uniform", "subgroup", "broadcast", "planes".
std::string_view gemv_kernel_name(GemvKernel kernel);

/// Whether the device can run a kernel.
bool gemv_kernel_supported(const vk::DevicePlan& plan, GemvKernel kernel);

/// Those that it can run where x is to take a path, best first (gemv.tune); never empty. Planes are
/// as precise as any `math` but kF32 asks.
std::vector<GemvKernel> gemv_kernels(const TuningTarget& target, const WeightType& type,
                                     XRoute path, Math math = Math::kAuto);

/// How much of a matrix a workgroup must be left where K is split.
struct GemvSplits {
  uint64_t busy_workgroups = 1;
  uint64_t least_bytes = 1;  ///< of weights, a split

  /// Over how many workgroups each K of a matrix is split, so that one of few rows does not leave
  /// most of a GPU idle: a power of two, and a function of the device and the shape alone. 1: not
  /// at all, and always so on CPU drivers and for kernels other than kSubgroup and kPlanes.
  uint32_t of(const WeightType& type, uint32_t n_rows, uint32_t n_cols) const;
};
GemvSplits gemv_splits(const TuningTarget& target, GemvKernel kernel, const WeightType& type);

class Gemv {
 public:
  static constexpr uint32_t kMaxRows = 8;
  static constexpr uint32_t kMaxSplits = 8;

  /// Declare the pipelines of a weight type: rows are padded to 1, 2, 4 or 8. `finish_rows`: see
  /// there; none: what suits the device (gemv.tune). Errors: kInvalidArgument when this build or
  /// device lacks the kernel, kSelfTestFailed when its module is rejected.
  static Result<Gemv> plan(vk::PipelineLibrary& pipelines, const WeightType& type,
                           GemvKernel kernel, std::optional<uint32_t> finish_rows = {});
  /// The first of gemv_kernels that this build has and whose modules are not rejected.
  static Result<Gemv> plan(vk::PipelineLibrary& pipelines, const WeightType& type, XRoute path,
                           Math math = Math::kAuto);

  /// How LinearArgs::x is; args.x_stride counts only of floats.
  XForm x_form() const;

  /// From now on K of every matrix is split so often, a power of two up to kMaxSplits. For tests.
  /// Errors, unless 1: kInvalidArgument for kernels other than kSubgroup and kPlanes,
  /// kSelfTestFailed when what adds the sums is rejected.
  Status force_splits(uint32_t splits);

  /// Over how many workgroups each K of this matrix is split. 1 too where a self-test has rejected
  /// what adds the sums.
  uint32_t splits_of(const WeightMatrix& matrix) const;

  /// Up to how many rows a row's bits are those that it has alone: kMaxRows, unless tiles of so many
  /// rows cut K into fewer slices, or fewer are finished (gemv.tune).
  uint32_t alike_rows() const;

  /// Up to how many rows of x it takes LinearFinish::added and scaled: 1, 2, 4 or 8, or 0.
  /// Products of planes only store their sums.
  uint32_t finish_rows() const { return finish_rows_; }
  /// Whether it takes LinearFinish::gated of a matrix for so many rows: in one part, of two halves
  /// in whole groups, whose K is not split.
  bool can_gate(const WeightMatrix& matrix, uint32_t rows) const;

  /// What args.scratch must hold for a matrix and so many rows. 0: none.
  uint64_t scratch_bytes(const WeightMatrix& matrix, uint64_t rows) const;
  /// The same whatever the matrix and the device.
  static uint64_t max_scratch_bytes(uint64_t rows);

  /// One dispatch for each part of the matrix, which must be of the planned type, or several where
  /// one would exceed the recorder's segment limit (linear_shares); where K is split, then one that
  /// adds the sums: gemv_splits leaves it too little to cut. At most kMaxRows rows.
  void record(vk::Recorder& recorder, const LinearArgs& args) const {
    record_products(recorder, args);
    record_sums(recorder, args);
  }
  /// The two halves of `record`, so that several matrices wait for their sums together.
  void record_products(vk::Recorder& recorder, const LinearArgs& args) const;
  void record_sums(vk::Recorder& recorder, const LinearArgs& args) const;

 private:
  struct Variant {
    const vk::Pipeline* pipeline = nullptr;
    uint32_t tile_rows = 0;
    uint32_t tile_cols = 0;
    uint32_t n_slices = 0;
  };
  void record_gated(vk::Recorder& recorder, const LinearArgs& args, const Variant& variant) const;

  std::array<Variant, 4> variants_;  // by tile_rows
  GemvKernel kernel_ = GemvKernel::kPortable;
  uint32_t finish_rows_ = 0;
  GemvSplits splits_;
  const vk::Pipeline* reduce_ = nullptr;  // null: K is never split
  uint32_t forced_splits_ = 0;            // 0: as splits_ says
};

}  // namespace pumice::ops
