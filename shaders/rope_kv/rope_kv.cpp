#include "shaders/rope_kv/rope_kv.hpp"

#include <algorithm>

#include "shaders/rope_kv/rope_kv.h"
#include "shaders/spirv.hpp"

namespace pumice::ops {
namespace {

constexpr uint32_t kWorkgroupSize = 64;
constexpr uint32_t kTasksPerLane = 4;  // of a full row: enough workgroups for one row, not too many

}  // namespace

Result<RopeKv> RopeKv::plan(vk::PipelineLibrary& pipelines, const Shape& shape) {
  if (shape.head_dim == 0 || shape.head_dim % 8 != 0 || shape.head_dim > 256) {
    return make_error(ErrorCode::kInvalidArgument,
                      "rope_kv: head_dim is {}; it must be a multiple of 8 up to 256",
                      shape.head_dim);
  }
  if (shape.rope_dims % 2 != 0 || shape.rope_dims > shape.head_dim) {
    return make_error(ErrorCode::kInvalidArgument,
                      "rope_kv: {} rotated dimensions; they must be even and at most head_dim, {}",
                      shape.rope_dims, shape.head_dim);
  }
  if (shape.n_heads == 0 || shape.n_kv_heads == 0) {
    return make_error(ErrorCode::kInvalidArgument, "rope_kv: {} heads and {} kv heads",
                      shape.n_heads, shape.n_kv_heads);
  }
  const bool f16 = shape.kv_type == KvType::kF16;
  const RopeKvSpec spec{.workgroup_size = kWorkgroupSize,
                        .head_dim = shape.head_dim,
                        .rope_dims = shape.rope_dims,
                        .halves = shape.pairs == RopePairs::kHalves ? 1u : 0u,
                        .kv_f16 = f16 ? 1u : 0u};
  PUMICE_TRY(const vk::ShaderModule module, find_spirv("rope_kv"));
  RopeKv op;
  op.shape_ = shape;
  PUMICE_TRY(op.pipeline_, pipelines.declare({.module = module,
                                              .label = f16 ? "rope_kv.f16" : "rope_kv.f32",
                                              .constants = vk::constants_of(spec),
                                              .push_bytes = sizeof(RopeKvPush)}));
  return op;
}

void RopeKv::record(vk::Recorder& recorder, const Args& args) const {
  RopeKvPush push;
  push.qkv = args.qkv.address();
  push.rope_table = shape_.rope_dims > 0 ? args.rope_table.address() : 0;
  push.positions = args.positions.address();
  push.row_seq = args.row_seq.address();
  push.block_table = args.block_table.address();
  push.n_heads = shape_.n_heads;
  push.n_kv_heads = shape_.n_kv_heads;
  push.row_stride = args.row_stride;
  push.table_stride = args.table_stride;
  push.layer_offset = args.layer_offset_bytes;

  const uint32_t kv_elements = 2 * shape_.n_kv_heads * shape_.head_dim;
  const uint32_t n_tasks = shape_.n_heads * shape_.rope_dims / 2 + kv_elements / 2;
  const uint32_t tasks_per_group = kWorkgroupSize * kTasksPerLane;
  const uint64_t turned = uint64_t{shape_.n_heads} * shape_.rope_dims;
  const uint64_t kv_bytes = kv_elements * (shape_.kv_type == KvType::kF16 ? 6 : 8);
  const vk::Cost cost{
      .bytes = args.rows * (turned * 8 + kv_bytes + shape_.rope_dims * 4),
      .flops = args.rows * 3 * (turned + uint64_t{shape_.n_kv_heads} * shape_.rope_dims)};
  recorder.dispatch(*pipeline_, push,
                    {args.rows, (n_tasks + tasks_per_group - 1) / tasks_per_group},
                    {vk::updates(args.qkv), vk::reads(args.rope_table), vk::reads(args.positions),
                     vk::reads(args.row_seq), vk::reads(args.block_table), vk::writes(args.kv)},
                    cost);
}

}  // namespace pumice::ops
