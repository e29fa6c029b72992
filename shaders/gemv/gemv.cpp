#include "shaders/gemv/gemv.hpp"

#include <algorithm>

#include "shaders/gemv/gemv.h"
#include "shaders/gemv/gemv_broadcast.h"
#include "shaders/spirv.hpp"

namespace pumice::ops {
namespace {

constexpr uint32_t kSliceLanes = 32;
constexpr std::array<uint32_t, 4> kTileRows = {1, 2, 4, 8};

/// A pipeline for up to `tile_rows` rows of x.
struct Tuned {
  std::vector<std::pair<uint32_t, uint32_t>> constants;
  uint32_t tile_cols = 0;      // columns of y of a workgroup
  uint32_t subgroup_size = 0;  // to require
};

Tuned tuned_broadcast(const DevicePlan& plan, uint32_t tile_rows) {
  // Columns of a lane share the loads and shuffles of x. Tokens/s of one stream, 128 M parameters
  // Q4_K, lavapipe 25.0.7 / 26.1.6 / 26.2.6: 4 57 / 69 / 69, 2 51 / 60 / 62; the bundled model,
  // whose matrices are one to three workgroups of 4, is as fast with either.
  const GemvBroadcastSpec spec{.workgroup_size = 32, .tile_rows = tile_rows, .lane_cols = 4};
  return {.constants = linear_constants(plan, XPath::kBroadcast, spec),
          .tile_cols = spec.workgroup_size * spec.lane_cols,
          .subgroup_size = plan.subgroup_size};
}

Tuned tuned_portable(const DevicePlan& plan, const WeightType& type, uint32_t tile_rows) {
  GemvSpec spec{.workgroup_size = 128, .tile_rows = tile_rows};
  if (plan.device_class != DeviceClass::kCpu) {
    // Not measured yet. 4096 weight rows are 128 workgroups, so 16 slices of K make 2048 subgroups;
    // several blocks at once put several 16-byte loads of each lane in flight. The sums of 8 rows
    // and 16 slices are 16 KiB of shared memory, the floor.
    const uint32_t tile_blocks = type.layout.tile_cols / kWeightBlockCols;
    spec.workgroup_size = std::min(512u, plan.max_workgroup_invocations / kSliceLanes * kSliceLanes);
    spec.unroll = std::min(tile_blocks, tile_rows <= 2 ? 8u : 4u);
  }
  return {.constants = linear_constants(plan, XPath::kPortable, spec),
          .tile_cols = kSliceLanes * spec.lane_cols};
}

Tuned tuned(const DevicePlan& plan, const WeightType& type, XPath path, uint32_t tile_rows) {
  return path == XPath::kBroadcast ? tuned_broadcast(plan, tile_rows)
                                   : tuned_portable(plan, type, tile_rows);
}

std::string module_name(const WeightType& type, XPath path) {
  return linear_module_name("gemv", type, path == XPath::kBroadcast ? "broadcast" : "uniform");
}

}  // namespace

XPath Gemv::usable_path(const vk::PipelineLibrary& pipelines, const WeightType& type,
                        XPath preferred) {
  const XPath other = preferred == XPath::kBroadcast ? XPath::kPortable : XPath::kBroadcast;
  const bool other_runs =
      other == XPath::kPortable || broadcast_supported(pipelines.device()->plan());
  const bool swap = pipelines.is_rejected(module_name(type, preferred)) && other_runs &&
                    !pipelines.is_rejected(module_name(type, other));
  return swap ? other : preferred;
}

Result<Gemv> Gemv::plan(vk::PipelineLibrary& pipelines, const WeightType& type, XPath path) {
  const DevicePlan& device = pipelines.device()->plan();
  if (path == XPath::kBroadcast && !broadcast_supported(device)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "gemv: this device has no broadcast path; use the portable one");
  }
  PUMICE_TRY(const vk::ShaderModule module, find_spirv(module_name(type, path)));
  Gemv op;
  for (size_t i = 0; i < kTileRows.size(); ++i) {
    const Tuned spec = tuned(device, type, path, kTileRows[i]);
    Variant& variant = op.variants_[i];
    PUMICE_TRY(variant.pipeline,
               pipelines.declare({.module = module,
                                  .label = {},
                                  .constants = spec.constants,
                                  .push_bytes = sizeof(GemvPush),
                                  .subgroup_size = spec.subgroup_size}));
    variant.tile_rows = kTileRows[i];
    variant.tile_cols = spec.tile_cols;
  }
  return op;
}

void Gemv::record(vk::Recorder& recorder, const LinearArgs& args) const {
  check_linear_args(args);
  PUMICE_CHECK(args.rows <= kMaxRows, "too many rows for gemv");
  const Variant& variant = *std::find_if(variants_.begin(), variants_.end(), [&](const Variant& v) {
    return v.tile_rows >= args.rows;
  });
  for (const WeightMatrixPart& part : args.weights.parts) {
    recorder.dispatch(*variant.pipeline, linear_push<GemvPush>(args, part),
                      {(part.n_rows + variant.tile_cols - 1) / variant.tile_cols},
                      {vk::reads(part.range), linear_reads_x(args), linear_writes_y(args, part)},
                      linear_cost(args, part));
  }
}

}  // namespace pumice::ops
