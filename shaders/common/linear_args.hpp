// What gemm, gemv and linear share: their arguments and how x reaches the lanes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shaders/common/activation_kind.hpp"
#include "shaders/common/tuning.hpp"
#include "shaders/common/weight_matrix.hpp"
#include "shaders/common/x_broadcast.h"
#include "vk/memory.hpp"
#include "vk/pipeline.hpp"
#include "vk/plan.hpp"
#include "vk/recorder.hpp"

namespace pumice::ops {

/// What gemv's kernels for GPUs do besides with their sums, so that it takes no dispatch of its own:
/// nothing, or what comes before a norm, or what comes behind one and of gates and ups.
struct LinearFinish {
  /// Columns of a row whose squares are added up together.
  static constexpr uint32_t kSquares = 32;
  static uint32_t n_squares(uint32_t columns) { return (columns + kSquares - 1) / kSquares; }

  /// Before a norm. Sums are added to y, whose stride is the matrix's rows. Times `norm` it is
  /// written to `normed`, and `squares` holds y's.
  struct Added {
    vk::BufferRange norm;     ///< float [n_rows]
    vk::BufferRange normed;   ///< float [rows][n_rows]
    vk::BufferRange squares;  ///< float [rows][n_squares(n_rows)]
  };
  /// Behind a norm, x being its `normed`: sums are divided by the root of the mean square and eps.
  struct Scaled {
    vk::BufferRange squares;  ///< float [rows][n_squares(n_cols)]
    float eps = 0;
  };
  std::optional<Added> added = {};
  std::optional<Scaled> scaled = {};
  /// The first half of the matrix's rows are gates, the others ups: y is activation(gate) * up, of
  /// half as many numbers. May be scaled too.
  std::optional<ActivationKind> gated = {};

  bool none() const { return !added && !scaled && !gated; }
};

/// y[row][n] = sum over k of x[row][k] * weights[n][k], fp32.
struct LinearArgs {
  const WeightMatrix& weights;
  vk::BufferRange x;      ///< float [rows][x_stride], 16-byte aligned; weights.n_cols are read
  uint32_t x_stride = 0;  ///< floats, a multiple of 4
  vk::BufferRange y;      ///< float [rows][y_stride]; weights.n_rows are written, nothing else
  uint32_t y_stride = 0;  ///< floats
  uint32_t rows = 0;
  vk::BufferRange scratch = {};  ///< for Linear: see its scratch_bytes
  LinearFinish finish = {};      ///< of Gemv, where it says that it can

  uint32_t n_outputs() const { return weights.n_rows / (finish.gated ? 2 : 1); }
};

/// How the activations, which all lanes need, reach them.
enum class XRoute {
  kPortable,  ///< shared memory (gemm) or loads from one address (gemv): works everywhere
  /// Loaded by the lanes of a subgroup and shuffled; for CPU drivers. gemm loads from one address
  /// instead where such a driver makes that one load (gemm.tune).
  kBroadcast,
};

/// Whether the device can run XRoute::kBroadcast: subgroup shuffles at a known size of 4, 8, 16 or
/// 32 and 64-bit integers.
bool broadcast_supported(const vk::DevicePlan& plan);

/// The faster path of the device (linear.tune).
XRoute tuned_x_route(const TuningTarget& target);

/// "gemm.q4_k.shared" of ("gemm", Q4_K, "shared").
std::string linear_module_name(std::string_view op, const WeightType& type,
                               std::string_view variant);

/// Specialisation constants of a module of the broadcast path.
template <typename Spec>
std::vector<std::pair<uint32_t, uint32_t>> broadcast_constants(const vk::DevicePlan& plan,
                                                               const Spec& spec,
                                                               uint32_t wide_loads) {
  auto constants = vk::constants_of(spec);
  const auto more = vk::constants_of(
      XBroadcastSpec{.subgroup_size = plan.subgroup_size, .wide_loads = wide_loads});
  constants.insert(constants.end(), more.begin(), more.end());
  return constants;
}

/// Check what the kernels assume of arguments (a PUMICE_CHECK: callers guarantee it).
void check_linear_args(const LinearArgs& args);

/// Tiles of the resident layout along K.
inline uint32_t linear_col_tiles(const LinearArgs& args) {
  const uint32_t tile_cols = args.weights.type->layout.tile_cols;
  return (args.weights.n_cols + tile_cols - 1) / tile_cols;
}

/// Push constants of a part; GemmPush and GemvPush have the same fields.
template <typename Push>
Push linear_push(const LinearArgs& args, const WeightMatrixPart& part) {
  Push push;
  push.weights = part.range.address();
  push.x = args.x.address();
  push.y = args.y.address() + uint64_t{part.first_row} * 4;
  push.grid = args.weights.grid.address();
  push.rows = args.rows;
  push.n = part.n_rows;
  push.k = args.weights.n_cols;
  push.x_stride = args.x_stride;
  push.y_stride = args.y_stride;
  push.n_col_tiles = linear_col_tiles(args);
  return push;
}

/// The ranges a part's dispatch touches. `copies`: of all rows of y, one after the other.
vk::Access linear_reads_x(const LinearArgs& args);
vk::Access linear_writes_y(const LinearArgs& args, const WeightMatrixPart& part,
                           uint32_t copies = 1);

/// A dispatch: outputs of a part of the matrix, and what computing `copies` of them costs.
struct LinearShare {
  WeightMatrixPart part;
  vk::Cost cost;
};

/// The dispatches that a part of a matrix is computed in, by rising output. All of it if `limit`
/// holds its cost; else as few shares as it holds, about equal, of as many outputs as are whole
/// workgroups of `tile_cols` and whole groups of kRowGroup: one such granule may cost more than the
/// limit. An output comes out the same in any of them, to the last bit. Costs add up to that of the
/// whole; x is shared out like y, since workgroups read it again and again in any case.
std::vector<LinearShare> linear_shares(const LinearArgs& args, const WeightMatrixPart& part,
                                       const vk::SegmentLimit& limit, uint32_t tile_cols,
                                       vk::Arithmetic arithmetic = vk::Arithmetic::kF32,
                                       uint32_t copies = 1);

}  // namespace pumice::ops
