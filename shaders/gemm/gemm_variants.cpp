#include "shaders/gemm/gemm_variants.hpp"

#include <algorithm>

#include "shaders/gemm/gemm.h"
#include "shaders/gemm/gemm_i8.h"
#include "shaders/gemm/gemm_matrix2.h"
#include "shaders/gemm/matrix_variant.hpp"

namespace pumice::ops {
namespace {

GemmVariant of_spec(const vk::DevicePlan& plan, std::string_view name, XPath path,
                    const GemmSpec& spec) {
  GemmVariant variant{.name = name};
  if (path == XPath::kBroadcast) variant.subgroup_size = plan.subgroup_size;
  variant.tiles.push_back({.rows = spec.tile_rows,
                           .cols = spec.workgroup_size * spec.lane_cols,
                           .constants = linear_constants(plan, path, spec),
                           .workgroup_size = spec.workgroup_size});
  return variant;
}

GemmVariant broadcast_variant(const vk::DevicePlan& plan) {
  // lavapipe 25.0.7, GFLOP/s a core (of 23 for dependent multiplications and additions) by
  // tile_rows x lane_cols: 16x2 22.4, 8x4 22.4, 8x2 19.8, 16x1 18.2; Q4_K 19.4, 18.7, 15.9, 15.7.
  // Compile time 0.2 s for 16x2, 0.1 s for half of it.
  return of_spec(plan, "broadcast", XPath::kBroadcast,
                 {.workgroup_size = 64, .tile_rows = 16, .lane_cols = 2});
}

/// lavapipe 26 loads what is uniform once for all lanes and has cooperative matrices, which older
/// ones lack.
bool loads_uniform_once(const vk::DevicePlan& plan) {
  return plan.device_class == vk::DeviceClass::kCpu && plan.features.cooperative_matrix;
}

GemmVariant uniform_variant(const vk::DevicePlan& plan) {
  // Tokens/s of pp64, 128 M parameters Q4_K, lavapipe 26.1.6 / 26.2.6; broadcast 212 / 288:
  // tile_rows x lane_cols 16x2 330 / 396, 16x3 318 / 419, 32x2 256 / 474, 8x4 245 / 327, 16x1 263 /
  // 319. On 25.0.7 16x2 takes 1.8 times as long as broadcast.
  return of_spec(plan, "uniform", XPath::kPortable,
                 {.workgroup_size = 64, .tile_rows = 16, .lane_cols = 2});
}

/// A subgroup of 8 or 16 has one vector register of its width for each value, of which Intel's GPUs
/// have 128 an invocation; GPUs of wider ones have 255 or 256.
bool has_few_registers(const vk::DevicePlan& plan) {
  return plan.subgroup.min_size != 0 && plan.subgroup.min_size <= 16;
}

GemmVariant shared_variant(const vk::DevicePlan& plan) {
  // On lavapipe 25.0 compile time is quadratic in tile_rows (16: 7 s, 4: 0.6 s) and speed is the
  // same. Four columns a lane share what one reads of x, which on SwiftShader costs more than the
  // arithmetic: twice as fast as one column there, 1.6 to 2.5 times on lavapipe 25 and 26; eight
  // take 23 s to compile. Not measured on a GPU yet; there RADV compiles 16x2 to 128-144 registers
  // without spills (navi21, navi31, vega10).
  return of_spec(plan, "shared", XPath::kPortable,
                 plan.device_class == vk::DeviceClass::kCpu
                     ? GemmSpec{.workgroup_size = 16, .tile_rows = 4, .lane_cols = 4}
                     : GemmSpec{.workgroup_size = 128,
                                .tile_rows = 16,
                                .lane_cols = has_few_registers(plan) ? 1u : 2u});
}

/// What the plan lacks for matrices shared by a workgroup, whatever their size.
std::string matrix2_obstacle(const vk::DevicePlan& plan) {
  const vk::DeviceFeatures& features = plan.features;
  if (!features.matrix2_workgroup_scope) return "it needs cooperativeMatrixWorkgroupScope";
  if (!features.matrix2_flexible_dimensions) return "it needs cooperativeMatrixFlexibleDimensions";
  if (!features.matrix2_tensor_addressing) return "it needs cooperativeMatrixTensorAddressing";
  if (!features.matrix2_block_loads) return "it needs cooperativeMatrixBlockLoads";
  if (!features.shader_float16) return "it needs shaderFloat16";
  if (plan.matrix2.reserved_shared_bytes > plan.max_shared_bytes) {
    return "the driver reserves more shared memory than there is";
  }
  return "";
}

/// Invocations of the largest workgroup that may share matrices of these dimensions; 0: none.
uint32_t matrix2_workgroup_size(const vk::DevicePlan& plan, const GemmMatrix2Spec& spec) {
  constexpr uint32_t kMostInvocations = 256;
  const uint32_t most =
      std::min({kMostInvocations, plan.matrix2.max_workgroup_size, plan.max_workgroup_invocations});
  if (std::max({spec.tile_rows, spec.tile_cols, spec.tile_k}) > plan.matrix2.max_dimension) {
    return 0;
  }
  const auto whole = [](uint32_t size, uint32_t granularity) {
    return granularity != 0 && size % granularity == 0;
  };
  uint32_t best = 0;
  for (const vk::FlexibleMatrixShape& shape : plan.flexible_matrix_shapes) {
    if (shape.a == vk::ComponentType::kF16 && shape.b == vk::ComponentType::kF16 &&
        shape.c == vk::ComponentType::kF32 && shape.result == vk::ComponentType::kF32 &&
        !shape.saturating && shape.workgroup_invocations <= most &&
        whole(spec.tile_rows, shape.m_granularity) && whole(spec.tile_cols, shape.n_granularity) &&
        whole(spec.tile_k, shape.k_granularity)) {
      best = std::max(best, shape.workgroup_invocations);
    }
  }
  return best;
}

GemmVariant matrix2_variant(const vk::DevicePlan& plan) {
  GemmVariant variant{.name = "matrix2", .math = Math::kF16};
  variant.grid_obstacle = "it decodes weights one by one, and points hold several";
  variant.obstacle = matrix2_obstacle(plan);
  if (!variant.obstacle.empty()) return variant;
  // Not measured, nor run anywhere yet.
  for (GemmMatrix2Spec spec : {GemmMatrix2Spec{.tile_rows = 64, .tile_cols = 64},
                               GemmMatrix2Spec{.tile_rows = 128, .tile_cols = 128}}) {
    spec.workgroup_size = matrix2_workgroup_size(plan, spec);
    if (spec.workgroup_size == 0) continue;
    variant.tiles.push_back({.rows = spec.tile_rows,
                             .cols = spec.tile_cols,
                             .constants = vk::constants_of(spec),
                             .workgroup_size = spec.workgroup_size});
  }
  if (variant.tiles.empty()) {
    variant.obstacle = "the device shares no fp16 matrices of its sizes in a workgroup";
  }
  return variant;
}

GemmVariant i8_variant(const vk::DevicePlan& plan) {
  // On lavapipe, where these dot products are emulated, half the speed of fp32; 16 x 4 x 4 is 1.2
  // to 2.6 times as fast as 64 x 4 x 1 on 25 and 26, and 8 rows take twice as long to compile. Not
  // measured on a GPU yet; there RADV compiles 32 x 2 to 120-128 registers without spills (navi21,
  // navi31) and half of the vector instructions of a block are dot products.
  // Dot products that are emulated hold unpacked bytes in registers: with 32 x 2 Apple's compiler
  // (Mesa's) spilled 93 to 123, with 16 x 2 49.
  const bool emulated = !plan.integer_dot.packed_signed_accelerated;
  const GemmI8Spec spec =
      plan.device_class == vk::DeviceClass::kCpu
          ? GemmI8Spec{.workgroup_size = 16, .tile_rows = 4, .lane_cols = 4}
          : GemmI8Spec{.workgroup_size = 128,
                       .tile_rows = emulated || has_few_registers(plan) ? 16u : 32u,
                       .lane_cols = emulated ? 1u : 2u};
  GemmVariant variant{.name = "i8", .math = Math::kI8};
  variant.tiles.push_back({.rows = spec.tile_rows,
                           .cols = spec.workgroup_size * spec.lane_cols,
                           .constants = vk::constants_of(spec),
                           .workgroup_size = spec.workgroup_size});
  return variant;
}

}  // namespace

std::vector<GemmVariant> gemm_variants(const vk::DevicePlan& plan, Math math, XPath path) {
  std::vector<GemmVariant> variants;
  if (math == Math::kAuto || math == Math::kF16) variants.push_back(matrix2_variant(plan));
  // CPU drivers emulate fp16: lavapipe 26.1 multiplies F16 weights at 0.8 GFLOP/s with matrices and
  // at 4.3 in fp32 (723 tokens of the bundled model, both on a busy machine).
  if (math == Math::kF16 || (math == Math::kAuto && plan.device_class == vk::DeviceClass::kGpu)) {
    variants.push_back(matrix_variant(plan));
  }
  // Its error is hundreds of times that of fp16 inputs: never kAuto's, however fast.
  if (math == Math::kI8) variants.push_back(i8_variant(plan));
  if (math == Math::kAuto || math == Math::kF32) {
    if (path == XPath::kBroadcast) {
      if (loads_uniform_once(plan)) variants.push_back(uniform_variant(plan));
      variants.push_back(broadcast_variant(plan));
    }
    variants.push_back(shared_variant(plan));
    if (path != XPath::kBroadcast && broadcast_supported(plan)) {
      variants.push_back(broadcast_variant(plan));  // should the other fail the self-test
    }
  }
  return variants;
}

size_t choose_gemm_tile(std::span<const GemmTile> tiles, uint32_t rows, uint32_t n) {
  // Below this many workgroups a larger tile leaves much of a large GPU idle.
  constexpr uint64_t kBusyWorkgroups = 64;
  for (size_t i = tiles.size() - 1; i > 0; --i) {
    const auto count = [](uint32_t size, uint32_t tile) { return (size + tile - 1) / tile; };
    const bool filled = rows > tiles[i - 1].rows;
    const uint64_t workgroups = uint64_t{count(rows, tiles[i].rows)} * count(n, tiles[i].cols);
    if (filled && workgroups >= kBusyWorkgroups) return i;
  }
  return 0;
}

}  // namespace pumice::ops
