#include "shaders/gemm/matrix_variant.hpp"

#include <algorithm>

#include "shaders/common/matrix_shape.hpp"
#include "shaders/gemm/gemm_matrix.h"

namespace pumice::ops {
namespace {

// A part's sums in registers of each invocation.
constexpr uint32_t kMaxSums = 64;

GemmMatrixSpec spec_of(const vk::TuningRow& row, const vk::MatrixShape& shape,
                       uint32_t subgroup_size) {
  const uint32_t parts_down = row.number("parts_down");
  const uint32_t parts_across = row.number("parts_across");
  GemmMatrixSpec spec;
  // A matrix may be larger than the part a row means.
  spec.part_rows = std::max(row.number("part_rows"), shape.m);
  spec.part_cols = std::max(row.number("part_cols"), shape.n);
  spec.tile_rows = spec.part_rows * parts_down;
  spec.tile_cols = spec.part_cols * parts_across;
  spec.tile_k = row.number("tile_k");
  spec.buffers = row.number("buffers");
  spec.subgroup_size = subgroup_size;
  spec.workgroup_size = subgroup_size * parts_down * parts_across;
  spec.matrix_m = shape.m;
  spec.matrix_n = shape.n;
  spec.matrix_k = shape.k;
  return spec;
}

/// As gemm_matrix.comp declares it.
uint32_t shared_bytes(const GemmMatrixSpec& spec) {
  const uint32_t tiles = spec.buffers * (spec.tile_rows + spec.tile_cols) * (spec.tile_k + 8) * 2;
  const uint32_t y = spec.workgroup_size / spec.subgroup_size * spec.matrix_m * spec.matrix_n * 4;
  return tiles + y;
}

std::string fitting_obstacle(const GemmMatrixSpec& spec, const vk::DevicePlan& plan) {
  if (HALVED_COLS % spec.tile_k != 0) return "tile_k must divide 64";
  if (spec.part_rows * spec.part_cols > kMaxSums * spec.subgroup_size) return "too many registers";
  if (spec.workgroup_size > std::min(plan.max_workgroup_invocations, plan.max_workgroup_size[0])) {
    return "its workgroups are too large";
  }
  return shared_bytes(spec) > plan.max_shared_bytes ? "too much shared memory" : "";
}

}  // namespace

GemmVariant matrix_variant(const TuningTarget& target) {
  const vk::DevicePlan& plan = target.plan;
  GemmVariant variant{.name = "matrix",
                      .math = Math::kF16,
                      .x = XForm::kHalves,
                      .subgroup_size = plan.matrix_subgroup_size,
                      .full_subgroups = true};
  variant.obstacle = half_matrix_obstacle(plan);
  if (!variant.obstacle.empty()) return variant;
  const vk::MatrixShape* shape = half_matrix_shape(plan);
  for (const std::string_view rows : {"few", "many"}) {
    GemmMatrixSpec spec;
    const vk::TuningRow* row = choose_row(
        target, "gemm_matrix", vk::TuningFacts().set("rows", rows), [&](const vk::TuningRow& one) {
          spec = spec_of(one, *shape, plan.matrix_subgroup_size);
          return fitting_obstacle(spec, plan);
        });
    if (row == nullptr) continue;
    const auto constants = vk::constants_of(spec);
    if (!variant.tiles.empty() && variant.tiles.back().constants == constants) continue;
    variant.tiles.push_back({.rows = spec.tile_rows,
                             .cols = spec.tile_cols,
                             .constants = constants,
                             .workgroup_size = spec.workgroup_size,
                             .shared_bytes = shared_bytes(spec)});
  }
  if (variant.tiles.empty())
    variant.obstacle = "its tiles exceed the device's registers or shared memory";
  return variant;
}

}  // namespace pumice::ops
