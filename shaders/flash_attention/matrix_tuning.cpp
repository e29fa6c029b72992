#include "shaders/flash_attention/matrix_tuning.hpp"

#include <algorithm>

#include "shaders/common/kv_layout.hpp"
#include "shaders/common/matrix_shape.hpp"

namespace pumice::ops {
namespace {

constexpr uint32_t kSlices = 4;  // lanes that share a row in flash_attention_matrix.comp

uint32_t round_up(uint32_t value, uint32_t step) { return (value + step - 1) / step * step; }

std::string device_obstacle(const vk::DevicePlan& plan) {
  if (std::string obstacle = half_matrix_obstacle(plan); !obstacle.empty()) return obstacle;
  if (!plan.subgroup.shuffle || plan.matrix_subgroup_size < kSlices) {
    return "it needs shuffles in subgroups";
  }
  const vk::MatrixShape* matrix = half_matrix_shape(plan);
  return matrix->k < 8 ? "it needs cooperative matrices of at least 8 products" : "";
}

uint32_t own_rows_shared_bytes(uint32_t head_dim, const FlashAttention::Tuning& tuning) {
  const vk::MatrixShape& matrix = tuning.matrix;
  const uint32_t rows = tuning.max_tile_rows;
  const uint32_t keys = tuning.key_tile;
  const uint32_t key_row = round_up(head_dim, matrix.k) * 2 + 16;
  const uint32_t values = round_up(head_dim, matrix.n) * (keys * 2 + 16);  // where v_dim is as much
  const uint32_t score_row = std::max(keys * 4 + 32, keys * 2 + matrix.n * 4);
  return std::max(std::max(rows, keys) * key_row, values) + rows * (score_row + 8);
}

/// What flash_attention_matrix_rows.comp needs besides whole matrices.
std::string own_rows_obstacle(const vk::DevicePlan& plan, const FlashAttention::Shape& shape,
                              const FlashAttention::Tuning& tuning) {
  if (!plan.subgroup.vote) return "it needs votes in subgroups";
  const uint32_t rows = tuning.max_tile_rows / tuning.n_subgroups;
  if (tuning.max_tile_rows % tuning.n_subgroups != 0 || rows % tuning.matrix.m != 0) {
    return "it needs tiles of whole matrices";
  }
  const uint32_t lanes = plan.matrix_subgroup_size;
  if (lanes % rows != 0 || lanes % (tuning.key_tile / 4) != 0) {
    return fmt::format("its tiles need subgroups of more than {}", lanes);
  }
  return shape.head_dim > 128 ? "its registers hold no row of more than 128" : "";
}

}  // namespace

uint32_t matrix_attention_shared_bytes(uint32_t head_dim, const FlashAttention::Tuning& tuning) {
  if (tuning.own_rows) return own_rows_shared_bytes(head_dim, tuning);
  const vk::MatrixShape& matrix = tuning.matrix;
  const uint32_t rows = tuning.max_tile_rows;
  const uint32_t dim_bytes = round_up(head_dim, std::max(matrix.k, matrix.n)) * 2 + 16;
  const uint32_t scores = rows * (tuning.key_tile * 4 + 16);
  const uint32_t out = tuning.n_subgroups * matrix.m * matrix.n * 4;
  return (rows + tuning.key_tile) * dim_bytes + std::max(scores, out) +
         rows * (tuning.key_tile * 2 + 16) + rows * matrix.n * 4 + rows * 8;
}

std::string matrix_attention_obstacle(const vk::DevicePlan& plan,
                                      const FlashAttention::Shape& shape,
                                      const FlashAttention::Tuning& tuning) {
  if (std::string obstacle = device_obstacle(plan); !obstacle.empty()) return obstacle;
  const vk::MatrixShape& matrix = tuning.matrix;
  if (matrix != *half_matrix_shape(plan)) return "it needs a shape of matrices that the device has";
  const uint32_t key_step = std::max({kKvBlockTokens, matrix.n, matrix.k});
  if (tuning.max_tile_rows == 0 || tuning.max_tile_rows % matrix.m != 0 || tuning.key_tile == 0 ||
      tuning.key_tile % key_step != 0 || tuning.n_subgroups == 0 ||
      tuning.workgroup_size != tuning.n_subgroups * plan.matrix_subgroup_size) {
    return "it needs tiles of whole matrices";
  }
  if (tuning.workgroup_size > plan.max_workgroup_invocations) {
    return fmt::format("it needs workgroups of {}", tuning.workgroup_size);
  }
  if (shape.latent_dim != 0) return "its kernel reads values from V, and a latent has none";
  if (shape.head_dim > 256) return fmt::format("head_dim {} is more than 256", shape.head_dim);
  if (tuning.own_rows) {
    if (std::string obstacle = own_rows_obstacle(plan, shape, tuning); !obstacle.empty()) {
      return obstacle;
    }
  }
  const uint32_t shared_bytes = matrix_attention_shared_bytes(shape.head_dim, tuning);
  if (shared_bytes > plan.max_shared_bytes) {
    return fmt::format("head_dim {} needs {} bytes of shared memory", shape.head_dim, shared_bytes);
  }
  return {};
}

Result<FlashAttention::Tuning> matrix_attention_tuning(const TuningTarget& target,
                                                       const FlashAttention::Shape& shape,
                                                       const MatrixTuningObstacle& obstacle_of) {
  const vk::DevicePlan& plan = target.plan;
  std::string obstacle = device_obstacle(plan);
  if (!obstacle.empty()) return make_error(ErrorCode::kInvalidArgument, "{}", obstacle);
  const vk::MatrixShape& matrix = *half_matrix_shape(plan);
  const uint32_t key_step = std::max({kKvBlockTokens, matrix.n, matrix.k});
  FlashAttention::Tuning tuning{.path = FlashAttention::Path::kMatrix, .matrix = matrix};
  const auto facts = vk::TuningFacts().set("head_dim", shape.head_dim);
  choose_row(target, "attention_matrix", facts, [&](const vk::TuningRow& row) {
    tuning.own_rows = row.choice == "own_rows";
    tuning.n_subgroups = row.number("n_subgroups");
    tuning.workgroup_size = tuning.n_subgroups * plan.matrix_subgroup_size;
    tuning.max_tile_rows = round_up(row.number("tile_rows"), matrix.m);
    tuning.key_tile = round_up(row.number("key_tile"), key_step);
    obstacle = matrix_attention_obstacle(plan, shape, tuning);
    if (obstacle.empty() && obstacle_of) obstacle = obstacle_of(tuning);
    return obstacle;
  });
  if (!obstacle.empty()) return make_error(ErrorCode::kInvalidArgument, "{}", obstacle);
  return tuning;
}

}  // namespace pumice::ops
