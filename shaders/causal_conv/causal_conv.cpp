#include "shaders/causal_conv/causal_conv.hpp"

#include "shaders/causal_conv/causal_conv.h"
#include "shaders/common/row_shares.hpp"
#include "shaders/spirv.hpp"

namespace pumice::ops {
namespace {

constexpr uint32_t kWorkgroupSize = 64;
constexpr uint64_t kFloat = 4;

}  // namespace

Result<CausalConv> CausalConv::plan(vk::PipelineLibrary& pipelines, const Shape& shape) {
  if (shape.taps < 2 || shape.taps > kMostTaps) {
    return make_error(ErrorCode::kInvalidArgument, "causal_conv: {} taps, expected 2 to {}",
                      shape.taps, kMostTaps);
  }
  const CausalConvSpec spec{
      .workgroup_size = kWorkgroupSize, .taps = shape.taps, .applies_silu = shape.silu ? 1u : 0u};
  CausalConv op;
  op.shape_ = shape;
  PUMICE_TRY(op.pipeline_, declare_kernel<CausalConvPush>(pipelines, "causal_conv", spec));
  return op;
}

void CausalConv::record(vk::Recorder& recorder, const Args& args) const {
  const bool has_bias = !args.bias.empty();
  CausalConvPush push;
  push.x = args.x.address();
  push.y = args.y.address();
  push.weight = args.weight.address();
  push.bias = (has_bias ? args.bias : args.weight).address();
  push.items = args.items.address();
  push.row_item = args.row_item.address();
  push.x_stride = args.x_stride;
  push.y_stride = args.y_stride;
  push.n = args.n;
  push.state_offset = args.state_offset_bytes;
  push.has_bias = has_bias;
  const uint64_t row_bytes = args.n * kFloat;
  vk::Access x = vk::writes_columns(args.x, args.rows, args.x_stride * kFloat, row_bytes);
  x.mode = vk::AccessMode::kRead;
  dispatch_rows(
      recorder, *pipeline_, push, args.rows,
      {x, vk::writes_columns(args.y, args.rows, args.y_stride * kFloat, row_bytes),
       vk::reads(args.weight), vk::reads(args.bias), vk::reads(args.items),
       vk::reads(args.row_item), vk::updates(args.states)},
      [&](uint64_t rows) {
        const uint64_t n_states = 2 * (shape_.taps - 1) * std::min<uint64_t>(rows, args.n_items);
        const uint64_t n_weights = shape_.taps + (has_bias ? 1 : 0);
        return vk::Cost{.bytes = (2 * rows + n_states + n_weights) * row_bytes,
                        .flops = rows * args.n * (2 * shape_.taps + (shape_.silu ? 3 : 0))};
      },
      [&](CausalConvPush& moved, uint32_t first, uint32_t rows) {
        moved.first_row = first;
        return vk::Grid{(args.n + kWorkgroupSize - 1) / kWorkgroupSize, rows};
      });
}

}  // namespace pumice::ops
