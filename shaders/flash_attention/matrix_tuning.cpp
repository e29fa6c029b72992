#include "shaders/flash_attention/matrix_tuning.hpp"

#include <algorithm>
#include <bit>
#include <span>

#include "shaders/common/kv_layout.hpp"

namespace pumice::ops {
namespace {

constexpr uint32_t kSlices = 4;  // lanes that share a row in flash_attention_matrix.comp

uint32_t round_up(uint32_t value, uint32_t step) { return (value + step - 1) / step * step; }

/// Whether the kernel can be made of products of that shape.
bool is_usable(const MatrixShape& shape) {
  const auto power = [](uint32_t n) { return n >= 4 && n <= 64 && std::has_single_bit(n); };
  return shape.a == ComponentType::kF16 && shape.b == ComponentType::kF16 &&
         shape.c == ComponentType::kF32 && shape.result == ComponentType::kF32 &&
         !shape.saturating && shape.subgroup_scope && power(shape.m) && power(shape.n) &&
         power(shape.k) && shape.k >= 8;
}

std::string device_obstacle(const DevicePlan& plan) {
  if (!plan.features.cooperative_matrix) return "it needs cooperativeMatrix";
  if (std::none_of(plan.matrix_shapes.begin(), plan.matrix_shapes.end(), is_usable)) {
    return "it needs cooperative matrices of f16 with f32 sums";
  }
  if (!plan.require_subgroup_size || plan.subgroup_size < kSlices) {
    return "it needs subgroups of a size that can be required";
  }
  if (!plan.features.full_subgroups) return "it needs computeFullSubgroups";
  if (!plan.subgroup.shuffle) return "it needs shuffles in subgroups";
  return {};
}

struct MatrixTile {
  uint32_t rows, keys, n_subgroups;
};

// Not measured on a GPU. The largest product and, of tiles that fit the shared memory, those that
// read it least for each product: 2 row tiles by 4 key columns. RADV (navi31, gfx1201) compiles
// every head_dim without spills.
constexpr MatrixTile kGpuTiles[] = {{32, 64, 4}, {32, 32, 4}, {16, 32, 4}, {16, 16, 4}, {8, 16, 4}};
// CPU drivers compile for as long as there are products in the code: few of each subgroup.
constexpr MatrixTile kCpuTiles[] = {{16, 32, 8}, {16, 16, 8}, {8, 16, 4}};

}  // namespace

uint32_t matrix_attention_shared_bytes(uint32_t head_dim, const FlashAttention::Tuning& tuning) {
  const MatrixShape& matrix = tuning.matrix;
  const uint32_t rows = tuning.max_tile_rows;
  const uint32_t dim_bytes = round_up(head_dim, std::max(matrix.k, matrix.n)) * 2 + 16;
  const uint32_t scores = rows * (tuning.key_tile * 4 + 16);
  const uint32_t out = tuning.n_subgroups * matrix.m * matrix.n * 4;
  return (rows + tuning.key_tile) * dim_bytes + std::max(scores, out) +
         rows * (tuning.key_tile * 2 + 16) + rows * matrix.n * 4 + rows * 8;
}

std::string matrix_attention_obstacle(const DevicePlan& plan, const FlashAttention::Shape& shape,
                                      const FlashAttention::Tuning& tuning) {
  if (std::string obstacle = device_obstacle(plan); !obstacle.empty()) return obstacle;
  const MatrixShape& matrix = tuning.matrix;
  if (std::find(plan.matrix_shapes.begin(), plan.matrix_shapes.end(), matrix) ==
          plan.matrix_shapes.end() ||
      !is_usable(matrix)) {
    return "it needs a shape of cooperative matrices that the device has";
  }
  const uint32_t key_step = std::max({kKvBlockTokens, matrix.n, matrix.k});
  if (tuning.max_tile_rows == 0 || tuning.max_tile_rows % matrix.m != 0 || tuning.key_tile == 0 ||
      tuning.key_tile % key_step != 0 || tuning.n_subgroups == 0 ||
      tuning.workgroup_size != tuning.n_subgroups * plan.subgroup_size) {
    return "it needs tiles of whole matrices";
  }
  if (tuning.workgroup_size > plan.max_workgroup_invocations) {
    return fmt::format("it needs workgroups of {}", tuning.workgroup_size);
  }
  const uint32_t shared_bytes = matrix_attention_shared_bytes(shape.head_dim, tuning);
  if (shared_bytes > plan.max_shared_bytes) {
    return fmt::format("head_dim {} needs {} bytes of shared memory", shape.head_dim, shared_bytes);
  }
  return {};
}

Result<FlashAttention::Tuning> matrix_attention_tuning(const DevicePlan& plan,
                                                       const FlashAttention::Shape& shape) {
  if (const std::string obstacle = device_obstacle(plan); !obstacle.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "{}", obstacle);
  }
  std::vector<MatrixShape> matrices;
  std::copy_if(plan.matrix_shapes.begin(), plan.matrix_shapes.end(), std::back_inserter(matrices),
               is_usable);
  std::stable_sort(matrices.begin(), matrices.end(),
                   [](const auto& a, const auto& b) { return a.m * a.n * a.k > b.m * b.n * b.k; });
  const bool cpu = plan.device_class == DeviceClass::kCpu;
  const std::span<const MatrixTile> tiles =
      cpu ? std::span<const MatrixTile>(kCpuTiles) : std::span<const MatrixTile>(kGpuTiles);
  std::string obstacle;
  for (const MatrixShape& matrix : matrices) {
    const uint32_t key_step = std::max({kKvBlockTokens, matrix.n, matrix.k});
    for (const auto& tile : tiles) {
      FlashAttention::Tuning tuning{.path = FlashAttention::Path::kMatrix,
                                    .workgroup_size = tile.n_subgroups * plan.subgroup_size,
                                    .max_tile_rows = round_up(tile.rows, matrix.m),
                                    .key_tile = round_up(tile.keys, key_step),
                                    .n_subgroups = tile.n_subgroups,
                                    .matrix = matrix};
      obstacle = matrix_attention_obstacle(plan, shape, tuning);
      if (obstacle.empty()) return tuning;
    }
  }
  return make_error(ErrorCode::kInvalidArgument, "{}", obstacle);
}

}  // namespace pumice::ops
