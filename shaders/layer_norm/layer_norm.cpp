#include "shaders/layer_norm/layer_norm.hpp"

#include "shaders/common/row_shares.hpp"
#include "shaders/common/tuning.hpp"
#include "shaders/layer_norm/layer_norm.h"
#include "shaders/spirv.hpp"

namespace pumice::ops {

Result<LayerNorm> LayerNorm::plan(vk::PipelineLibrary& pipelines) {
  LayerNorm op;
  // Every device has workgroups as large as any of the table.
  const LayerNormSpec spec{.workgroup_size =
                               take_row(pipelines, "layer_norm").number("workgroup_size")};
  PUMICE_TRY(op.pipeline_, declare_kernel<LayerNormPush>(pipelines, "layer_norm", spec));
  return op;
}

void LayerNorm::record(vk::Recorder& recorder, const Args& args) const {
  const bool residual = !args.residual.empty();
  const bool bias = !args.bias.empty();
  const bool gather = !args.row_index.empty();
  LayerNormPush push;
  push.x = args.x.address();
  // Optional arrays that are absent point at x, as in rms_norm.
  push.residual = (residual ? args.residual : args.x).address();
  push.weight = args.weight.address();
  push.bias = (bias ? args.bias : args.x).address();
  push.y = args.y.address();
  push.row_index = (gather ? args.row_index : args.x).address();
  push.n = args.n;
  const uint32_t width = args.n_groups * args.n;
  push.x_stride = args.x_stride == 0 ? width : args.x_stride;
  push.y_stride = args.y_stride == 0 ? width : args.y_stride;
  push.add_residual = residual;
  push.add_bias = bias;
  push.gather = gather;
  push.eps = args.eps;
  dispatch_rows(
      recorder, *pipeline_, push, args.rows,
      {residual ? vk::updates(args.x) : vk::reads(args.x), vk::reads(args.residual),
       vk::reads(args.weight), vk::reads(args.bias), vk::writes(args.y), vk::reads(args.row_index)},
      [&](uint32_t rows) {
        const uint64_t elements = uint64_t{rows} * width;
        return vk::Cost{.bytes = elements * (residual ? 16 : 8) + uint64_t{width} * (bias ? 8 : 4),
                        .flops = elements * (6 + residual + bias)};
      },
      [&](LayerNormPush& moved, uint32_t first, uint32_t rows) {
        move_norm(moved, first);
        return vk::Grid{rows, args.n_groups};
      });
}

}  // namespace pumice::ops
