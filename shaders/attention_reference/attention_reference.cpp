#include "shaders/attention_reference/attention_reference.hpp"

#include "shaders/attention_reference/attention_scores.h"
#include "shaders/attention_reference/attention_softmax.h"
#include "shaders/attention_reference/attention_values.h"
#include "shaders/spirv.hpp"

namespace pumice::ops {
namespace {

uint32_t tiles(uint32_t n, uint32_t tile) { return (n + tile - 1) / tile; }

template <typename Spec>
Spec spec_of(const AttentionReference::Shape& shape, uint32_t tile_rows) {
  Spec spec;
  spec.head_dim = shape.head_dim;
  spec.tile_rows = tile_rows;
  spec.group = shape.n_heads / shape.n_kv_heads;
  spec.k_type = static_cast<uint32_t>(shape.kv_type.k);
  return spec;
}

}  // namespace

Result<AttentionReference> AttentionReference::plan(vk::PipelineLibrary& pipelines,
                                                    const Shape& shape, uint32_t tile_rows) {
  PUMICE_CHECK(tile_rows >= 1 && tile_rows <= kTileRows, "rows of a tile");
  PUMICE_TRY_STATUS(FlashAttention::check_shape(shape));
  if (shape.window != 0 || shape.soft_cap != 0 || shape.sinks) {
    return make_error(ErrorCode::kInvalidArgument,
                      "attention_reference: it computes no windows, soft caps or sinks");
  }
  PUMICE_TRY(const vk::ShaderModule scores, find_spirv("attention_scores"));
  PUMICE_TRY(const vk::ShaderModule softmax, find_spirv("attention_softmax"));
  PUMICE_TRY(const vk::ShaderModule values, find_spirv("attention_values"));
  const auto score_spec = spec_of<AttentionScoresSpec>(shape, tile_rows);
  auto value_spec = spec_of<AttentionValuesSpec>(shape, tile_rows);
  value_spec.v_type = static_cast<uint32_t>(shape.kv_type.v);
  AttentionReference op;
  op.shape_ = shape;
  op.key_tile_ = score_spec.workgroup_size;
  op.tile_rows_ = tile_rows;
  PUMICE_TRY(op.scores_, pipelines.declare({.module = scores,
                                            .constants = vk::constants_of(score_spec),
                                            .push_bytes = sizeof(AttentionScoresPush)}));
  PUMICE_TRY(op.softmax_, pipelines.declare({.module = softmax,
                                             .constants = vk::constants_of(AttentionSoftmaxSpec{}),
                                             .push_bytes = sizeof(AttentionSoftmaxPush)}));
  PUMICE_TRY(op.values_, pipelines.declare({.module = values,
                                            .constants = vk::constants_of(value_spec),
                                            .push_bytes = sizeof(AttentionValuesPush)}));
  return op;
}

void AttentionReference::record(vk::Recorder& recorder, const Args& args) const {
  const uint64_t scores = uint64_t{shape_.n_heads} * args.n_rows * args.n_keys;
  const auto plane_bytes = [&](KvType type) {
    return uint64_t{args.n_keys} * shape_.n_kv_heads * kv_row_bytes(type, shape_.head_dim);
  };
  const uint64_t y_bytes = uint64_t{args.n_rows} * shape_.n_heads * shape_.head_dim * 4;

  AttentionScoresPush score_push;
  score_push.q = args.q.address();
  score_push.positions = args.positions.address();
  score_push.block_table = args.block_table.address();
  score_push.scores = args.scores.address();
  score_push.q_stride = args.q_stride;
  score_push.layer_offset = args.layer_offset_bytes;
  score_push.n_rows = args.n_rows;
  score_push.n_keys = args.n_keys;
  score_push.scale = args.scale;
  recorder.dispatch(*scores_, score_push,
                    {tiles(args.n_keys, key_tile_), tiles(args.n_rows, tile_rows_), shape_.n_heads},
                    {vk::reads(args.q), vk::reads(args.positions), vk::reads(args.block_table),
                     vk::reads(args.kv), vk::writes(args.scores)},
                    {.bytes = y_bytes + plane_bytes(shape_.kv_type.k) + scores * 4,
                     .flops = 2 * scores * shape_.head_dim});

  AttentionSoftmaxPush softmax_push;
  softmax_push.scores = args.scores.address();
  softmax_push.n_rows = args.n_rows;
  softmax_push.n_keys = args.n_keys;
  recorder.dispatch(*softmax_, softmax_push, {args.n_rows, shape_.n_heads},
                    {vk::updates(args.scores)}, {.bytes = scores * 8, .flops = scores * 4});

  AttentionValuesPush value_push;
  value_push.weights = args.scores.address();
  value_push.positions = args.positions.address();
  value_push.block_table = args.block_table.address();
  value_push.y = args.y.address();
  value_push.layer_offset = args.layer_offset_bytes;
  value_push.n_heads = shape_.n_heads;
  value_push.n_rows = args.n_rows;
  value_push.n_keys = args.n_keys;
  recorder.dispatch(*values_, value_push, {tiles(args.n_rows, tile_rows_), shape_.n_heads},
                    {vk::reads(args.scores), vk::reads(args.positions), vk::reads(args.block_table),
                     vk::reads(args.kv), vk::writes(args.y)},
                    {.bytes = scores * 4 + plane_bytes(shape_.kv_type.v) + y_bytes,
                     .flops = 2 * scores * shape_.head_dim});
}

}  // namespace pumice::ops
