#include "shaders/gemm/gemm.hpp"

#include "shaders/gemm/gemm.h"
#include "shaders/spirv.hpp"

namespace pumice::ops {
namespace {

GemmSpec tuned(const DevicePlan& plan, XPath path) {
  // lavapipe 25.0.7, GFLOP/s a core (of 23 for dependent multiplications and additions) by
  // tile_rows x lane_cols: 16x2 22.4, 8x4 22.4, 8x2 19.8, 16x1 18.2; Q4_K 19.4, 18.7, 15.9, 15.7.
  // Compile time 0.2 s for 16x2, 0.1 s for half of it.
  if (path == XPath::kBroadcast) return {.workgroup_size = 64, .tile_rows = 16, .lane_cols = 2};
  // On lavapipe 25.0 compile time is quadratic in tile_rows (16: 7 s, 4: 0.6 s) and speed is the
  // same.
  if (plan.device_class == DeviceClass::kCpu) return {.workgroup_size = 64, .tile_rows = 4};
  // Not measured on a GPU yet. RADV compiles it to 128-144 registers without spills (navi21,
  // navi31, vega10).
  return {.workgroup_size = 128, .tile_rows = 16, .lane_cols = 2};
}

}  // namespace

Result<Gemm> Gemm::plan(vk::PipelineLibrary& pipelines, const WeightType& type, XPath path) {
  const DevicePlan& device = pipelines.device()->plan();
  const bool broadcast = path == XPath::kBroadcast;
  if (broadcast && !broadcast_supported(device)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "gemm: this device has no broadcast path; use the portable one");
  }
  PUMICE_TRY(const vk::ShaderModule module,
             find_spirv(linear_module_name("gemm", type, broadcast ? "broadcast" : "shared")));
  const GemmSpec spec = tuned(device, path);
  Gemm op;
  PUMICE_TRY(op.pipeline_,
             pipelines.declare({.module = module,
                                .label = {},
                                .constants = linear_constants(device, path, spec),
                                .push_bytes = sizeof(GemmPush),
                                .subgroup_size = broadcast ? device.subgroup_size : 0}));
  op.tile_rows_ = spec.tile_rows;
  op.tile_cols_ = spec.workgroup_size * spec.lane_cols;
  return op;
}

void Gemm::record(vk::Recorder& recorder, const LinearArgs& args) const {
  check_linear_args(args);
  for (const WeightMatrixPart& part : args.weights.parts) {
    const vk::Grid grid{(args.rows + tile_rows_ - 1) / tile_rows_,
                        (part.n_rows + tile_cols_ - 1) / tile_cols_};
    recorder.dispatch(*pipeline_, linear_push<GemmPush>(args, part), grid,
                      {vk::reads(part.range), linear_reads_x(args), linear_writes_y(args, part)},
                      linear_cost(args, part));
  }
}

}  // namespace pumice::ops
