#include "shaders/gemm_i8/gemm_i8.hpp"

#include "shaders/gemm_i8/gemm_i8.h"
#include "shaders/spirv.hpp"

namespace pumice::ops {
namespace {

GemmI8Spec tuned(const DevicePlan& plan) {
  // As for gemm.comp, lavapipe's compile time is quadratic in tile_rows.
  if (plan.device_class == DeviceClass::kCpu) {
    return {.workgroup_size = 64, .tile_rows = 4, .lane_cols = 1};
  }
  // Not measured on a GPU yet.
  return {.workgroup_size = 128, .tile_rows = 32, .lane_cols = 2};
}

}  // namespace

bool GemmI8::available(const vk::PipelineLibrary& pipelines, const WeightType& type) {
  const Result<vk::ShaderModule> module = find_spirv("gemm_i8", type);
  return module.ok() && pipelines.obstacle(*module).empty();
}

Result<GemmI8> GemmI8::plan(vk::PipelineLibrary& pipelines, const WeightType& type) {
  PUMICE_TRY(const vk::ShaderModule module, find_spirv("gemm_i8", type));
  const GemmI8Spec spec = tuned(pipelines.device()->plan());
  GemmI8 op;
  PUMICE_TRY(op.pipeline_, pipelines.declare({.module = module,
                                              .label = {},
                                              .constants = vk::constants_of(spec),
                                              .push_bytes = sizeof(GemmI8Push)}));
  op.tile_rows_ = spec.tile_rows;
  op.tile_cols_ = spec.workgroup_size * spec.lane_cols;
  return op;
}

void GemmI8::record(vk::Recorder& recorder, const LinearArgs& args, const QuantizedX& x) const {
  const uint64_t rows = args.rows;
  const uint64_t k = args.weights.n_cols;
  for (const WeightMatrixPart& part : args.weights.parts) {
    GemmI8Push push;
    push.weights = part.range.address();
    push.quants = x.quants.address();
    push.scales = x.scales.address();
    push.y = args.y.address() + uint64_t{part.first_row} * 4;
    push.rows = args.rows;
    push.n = part.n_rows;
    push.n_blocks = args.weights.n_cols / kWeightBlockCols;
    push.y_stride = args.y_stride;
    push.n_col_tiles = linear_col_tiles(args);
    recorder.dispatch(*pipeline_, push,
                      {(args.rows + tile_rows_ - 1) / tile_rows_,
                       (part.n_rows + tile_cols_ - 1) / tile_cols_},
                      {vk::reads(part.range), vk::reads(x.quants), vk::reads(x.scales),
                       linear_writes_y(args, part)},
                      {.bytes = part.range.size_bytes + QuantizedX::size_bytes(rows, k) +
                                rows * part.n_rows * 4,
                       .flops = 2 * rows * k * part.n_rows});
  }
}

}  // namespace pumice::ops
