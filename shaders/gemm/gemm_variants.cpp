#include "shaders/gemm/gemm_variants.hpp"

#include "shaders/gemm/gemm.h"

namespace pumice::ops {
namespace {

GemmVariant of_spec(const DevicePlan& plan, std::string_view name, XPath path,
                    const GemmSpec& spec) {
  GemmVariant variant{.name = name};
  if (path == XPath::kBroadcast) variant.subgroup_size = plan.subgroup_size;
  variant.tiles.push_back({.rows = spec.tile_rows,
                           .cols = spec.workgroup_size * spec.lane_cols,
                           .constants = linear_constants(plan, path, spec),
                           .workgroup_size = spec.workgroup_size});
  return variant;
}

GemmVariant broadcast_variant(const DevicePlan& plan) {
  // lavapipe 25.0.7, GFLOP/s a core (of 23 for dependent multiplications and additions) by
  // tile_rows x lane_cols: 16x2 22.4, 8x4 22.4, 8x2 19.8, 16x1 18.2; Q4_K 19.4, 18.7, 15.9, 15.7.
  // Compile time 0.2 s for 16x2, 0.1 s for half of it.
  return of_spec(plan, "broadcast", XPath::kBroadcast,
                 {.workgroup_size = 64, .tile_rows = 16, .lane_cols = 2});
}

GemmVariant shared_variant(const DevicePlan& plan) {
  // On lavapipe 25.0 compile time is quadratic in tile_rows (16: 7 s, 4: 0.6 s) and speed is the
  // same. Four columns a lane share what one reads of x, which on SwiftShader costs more than the
  // arithmetic: twice as fast as one column there, 1.6 to 2.5 times on lavapipe 25 and 26; eight
  // take 23 s to compile. Not measured on a GPU yet; there RADV compiles 16x2 to 128-144 registers
  // without spills (navi21, navi31, vega10).
  return of_spec(plan, "shared", XPath::kPortable,
                 plan.device_class == DeviceClass::kCpu
                     ? GemmSpec{.workgroup_size = 16, .tile_rows = 4, .lane_cols = 4}
                     : GemmSpec{.workgroup_size = 128, .tile_rows = 16, .lane_cols = 2});
}

}  // namespace

std::vector<GemmVariant> gemm_variants(const DevicePlan& plan, Math math, XPath path) {
  std::vector<GemmVariant> variants;
  if (math == Math::kAuto || math == Math::kF32) {
    if (path == XPath::kBroadcast) variants.push_back(broadcast_variant(plan));
    variants.push_back(shared_variant(plan));
    if (path != XPath::kBroadcast && broadcast_supported(plan)) {
      variants.push_back(broadcast_variant(plan));  // should the other fail the self-test
    }
  }
  return variants;
}

size_t choose_gemm_tile(std::span<const GemmTile> tiles, uint32_t rows, uint32_t /*n*/) {
  for (size_t i = 0; i < tiles.size(); ++i) {
    if (tiles[i].rows >= rows) return i;
  }
  return tiles.size() - 1;
}

}  // namespace pumice::ops
