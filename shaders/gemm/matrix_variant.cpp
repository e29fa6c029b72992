#include "shaders/gemm/matrix_variant.hpp"

#include <algorithm>
#include <array>

#include "shaders/common/matrix_shape.hpp"
#include "shaders/gemm/gemm_matrix.h"

namespace pumice::ops {
namespace {

/// The part of y that a subgroup holds in registers, the parts of a tile, and what shared memory
/// holds of x and W.
struct MatrixTile {
  uint32_t part_rows, part_cols;
  uint32_t parts_down, parts_across;
  uint32_t k, buffers;
};

// For many rows, best first: the next where registers, shared memory or workgroups are too small.
// With subgroups of 32 each invocation of the first holds 64 sums and dequantises one run of 32
// weights a step. Not measured on a GPU yet. On RADV (navi31) the same tile by four subgroups with
// 128 sums spilled 6 to 22 registers.
constexpr std::array<MatrixTile, 5> kLargeTiles = {{{64, 32, 2, 4, 64, 1},
                                                    {32, 64, 2, 2, 32, 1},
                                                    {32, 32, 2, 2, 32, 2},
                                                    {16, 32, 2, 2, 32, 2},
                                                    {16, 16, 2, 2, 32, 2}}};
// For few rows, or so few tiles that most of a GPU would idle.
constexpr std::array<MatrixTile, 4> kSmallTiles = {
    {{32, 16, 1, 4, 64, 1}, {32, 16, 1, 4, 32, 1}, {16, 16, 1, 2, 32, 2}, {16, 16, 1, 1, 32, 2}}};
// For CPU drivers, which compile every unrolled run of weights: one an invocation.
constexpr std::array<MatrixTile, 1> kCpuTiles = {{{16, 16, 2, 2, 32, 2}}};
// For subgroups of 16 or 8, an invocation of which has 128 registers (Intel): 16 sums each, and one
// run of 32 weights or none. With 32 sums Mesa's compiler spilled 100 on dg2 and none on bmg.
constexpr std::array<MatrixTile, 2> kNarrowLargeTiles = {
    {{16, 16, 2, 4, 32, 1}, {16, 16, 2, 2, 32, 1}}};
constexpr std::array<MatrixTile, 2> kNarrowSmallTiles = {
    {{16, 16, 1, 4, 32, 1}, {16, 16, 1, 2, 32, 1}}};
constexpr std::array<MatrixTile, 1> kNarrowestLargeTiles = {{{8, 16, 4, 4, 32, 1}}};
constexpr std::array<MatrixTile, 1> kNarrowestSmallTiles = {{{8, 16, 2, 4, 32, 1}}};
// A part's sums in registers of each invocation.
constexpr uint32_t kMaxSums = 64;

GemmMatrixSpec spec_of(const MatrixTile& tile, const vk::MatrixShape& shape,
                       uint32_t subgroup_size) {
  GemmMatrixSpec spec;
  // A matrix may be larger than the part a table entry means.
  spec.part_rows = std::max(tile.part_rows, shape.m);
  spec.part_cols = std::max(tile.part_cols, shape.n);
  spec.tile_rows = spec.part_rows * tile.parts_down;
  spec.tile_cols = spec.part_cols * tile.parts_across;
  spec.tile_k = tile.k;
  spec.buffers = tile.buffers;
  spec.subgroup_size = subgroup_size;
  spec.workgroup_size = subgroup_size * tile.parts_down * tile.parts_across;
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

bool fits(const GemmMatrixSpec& spec, const vk::DevicePlan& plan) {
  return spec.part_rows * spec.part_cols <= kMaxSums * spec.subgroup_size &&
         spec.workgroup_size <=
             std::min(plan.max_workgroup_invocations, plan.max_workgroup_size[0]) &&
         shared_bytes(spec) <= plan.max_shared_bytes;
}

}  // namespace

GemmVariant matrix_variant(const vk::DevicePlan& plan) {
  GemmVariant variant{.name = "matrix",
                      .math = Math::kF16,
                      .subgroup_size = plan.matrix_subgroup_size,
                      .full_subgroups = true};
  variant.obstacle = half_matrix_obstacle(plan);
  if (!variant.obstacle.empty()) return variant;
  const vk::MatrixShape* shape = half_matrix_shape(plan);
  const auto add_first_fitting = [&](std::span<const MatrixTile> tiles) {
    for (const MatrixTile& tile : tiles) {
      const GemmMatrixSpec spec = spec_of(tile, *shape, plan.matrix_subgroup_size);
      if (!fits(spec, plan)) continue;
      variant.tiles.push_back({.rows = spec.tile_rows,
                               .cols = spec.tile_cols,
                               .constants = vk::constants_of(spec),
                               .workgroup_size = spec.workgroup_size,
                               .shared_bytes = shared_bytes(spec)});
      return;
    }
  };
  if (plan.device_class == vk::DeviceClass::kCpu) {
    add_first_fitting(kCpuTiles);
  } else if (plan.matrix_subgroup_size <= 8) {
    add_first_fitting(kNarrowestSmallTiles);
    add_first_fitting(kNarrowestLargeTiles);
  } else if (plan.matrix_subgroup_size <= 16) {
    add_first_fitting(kNarrowSmallTiles);
    add_first_fitting(kNarrowLargeTiles);
  } else {
    add_first_fitting(kSmallTiles);
    add_first_fitting(kLargeTiles);
  }
  if (variant.tiles.empty())
    variant.obstacle = "its tiles exceed the device's registers or shared memory";
  return variant;
}

}  // namespace pumice::ops
