#include "shaders/rope_kv/rope_kv.hpp"

#include "shaders/common/row_shares.hpp"
#include "shaders/common/tuning.hpp"
#include "shaders/rope_kv/rope_kv.h"
#include "shaders/rope_kv/rope_kv_heads.h"
#include "shaders/spirv.hpp"

namespace pumice::ops {
namespace {

constexpr uint32_t kWorkgroupSize = 64;
constexpr uint32_t kTasksPerLane = 4;  // of a full row: enough workgroups for one row, not too many

/// To the rows from `first` on: of those before, the arrays with an element for each are skipped.
template <typename Push>
void move_rows(Push& push, uint64_t first) {
  push.qkv += first * push.row_stride * 4;
  push.positions += first * 4;
  push.row_seq += first * 4;
}

}  // namespace

Result<RopeKv> RopeKv::plan(vk::PipelineLibrary& pipelines, const Shape& shape,
                            uint32_t head_lanes) {
  const uint32_t most = shape.has_values ? 512 : 1024;
  if (shape.head_dim == 0 || shape.head_dim % 8 != 0 || shape.head_dim > most) {
    return make_error(ErrorCode::kInvalidArgument,
                      "rope_kv: head_dim is {}; it must be a multiple of 8 up to {}",
                      shape.head_dim, most);
  }
  if (shape.rope_dims % 2 != 0 || shape.rope_dims > shape.head_dim) {
    return make_error(ErrorCode::kInvalidArgument,
                      "rope_kv: {} rotated dimensions; they must be even and at most head_dim, {}",
                      shape.rope_dims, shape.head_dim);
  }
  if ((shape.n_heads == 0 && shape.has_values) || shape.n_kv_heads == 0) {
    return make_error(ErrorCode::kInvalidArgument, "rope_kv: {} heads and {} kv heads",
                      shape.n_heads, shape.n_kv_heads);
  }
  if (shape.v_dim % 8 != 0 || shape.v_dim > shape.head_dim ||
      (shape.v_dim != 0 && !shape.has_values)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "rope_kv: values of {} numbers{} and keys of {}; they must be a multiple of "
                      "8 up to the keys'",
                      shape.v_dim, shape.has_values ? "" : " where none are kept", shape.head_dim);
  }
  const KvTypes kept = shape.has_values ? shape.kv_type : KvTypes(shape.kv_type.k);
  PUMICE_TRY_STATUS(check_kv_types("rope_kv", kept, shape.head_dim, shape.v_dim));
  const auto k_type = static_cast<uint32_t>(kept.k);
  const auto v_type = static_cast<uint32_t>(kept.v);
  const uint32_t halves = shape.pairs == RopePairs::kHalves ? 1 : 0;
  RopeKv op;
  op.shape_ = shape;
  op.shape_.kv_type = kept;
  if (op.by_heads()) {
    if (head_lanes == 0) {
      const auto facts = vk::TuningFacts().set("head_dim", shape.head_dim);
      head_lanes = take_row(pipelines, "rope_kv_heads", facts).number("head_lanes");
    }
    const RopeKvHeadsSpec spec{.workgroup_size = head_lanes,
                               .head_dim = shape.head_dim,
                               .rope_dims = shape.rope_dims,
                               .halves = halves,
                               .k_type = k_type,
                               .head_norms = shape.head_norms,
                               .biases = shape.biases,
                               .v_type = v_type,
                               .v_dim = shape.value_dim()};
    PUMICE_TRY(const vk::ShaderModule module, find_spirv("rope_kv_heads"));
    PUMICE_TRY(op.pipeline_, declare_kernel<RopeKvHeadsPush>(pipelines, module, spec,
                                                             "rope_kv_heads." + kept.name()));
    return op;
  }
  const RopeKvSpec spec{.workgroup_size = kWorkgroupSize,
                        .head_dim = shape.head_dim,
                        .rope_dims = shape.rope_dims,
                        .halves = halves,
                        .k_type = k_type,
                        .v_type = v_type,
                        .has_values = shape.has_values,
                        .v_dim = shape.value_dim()};
  PUMICE_TRY(const vk::ShaderModule module, find_spirv("rope_kv"));
  PUMICE_TRY(op.pipeline_,
             declare_kernel<RopeKvPush>(pipelines, module, spec, "rope_kv." + kept.name()));
  return op;
}

vk::Cost RopeKv::cost(uint32_t rows) const {
  const uint64_t q = uint64_t{shape_.n_heads} * shape_.head_dim;
  const uint64_t k = uint64_t{shape_.n_kv_heads} * shape_.head_dim;
  const uint64_t turned_q = uint64_t{shape_.n_heads} * shape_.rope_dims;
  const uint64_t turned = turned_q + uint64_t{shape_.n_kv_heads} * shape_.rope_dims;
  const uint64_t q_bytes = (by_heads() ? q : turned_q) * 8;
  const uint64_t v = v_elements();
  uint64_t row_bytes = kv_row_bytes(shape_.kv_type.k, shape_.head_dim);
  if (shape_.has_values) row_bytes += kv_row_bytes(shape_.kv_type.v, shape_.value_dim());
  const uint64_t kv_bytes = (k + v) * 4 + shape_.n_kv_heads * row_bytes;
  vk::Cost cost{.bytes = rows * (q_bytes + kv_bytes + shape_.rope_dims * 4),
                .flops = rows * 3 * turned};
  const uint64_t all = q + k + v;
  if (shape_.biases) cost += {.bytes = all * 4, .flops = rows * all};
  if (shape_.head_norms) {
    cost += {.bytes = uint64_t{shape_.head_dim} * 8, .flops = rows * 4 * (q + k)};
  }
  return cost;
}

void RopeKv::record_heads(vk::Recorder& recorder, const Args& args) const {
  RopeKvHeadsPush push;
  // Absent arrays point at qkv.
  const auto address = [&](bool used, const vk::BufferRange& range) {
    return used ? range.address() : args.qkv.address();
  };
  push.qkv = args.qkv.address();
  push.rope_table = address(shape_.rope_dims > 0, args.rope_table);
  push.positions = args.positions.address();
  push.row_seq = args.row_seq.address();
  push.block_table = args.block_table.address();
  push.q_norm = address(shape_.head_norms, args.q_norm);
  push.k_norm = address(shape_.head_norms, args.k_norm);
  push.bias = address(shape_.biases, args.bias);
  push.n_heads = shape_.n_heads;
  push.n_kv_heads = shape_.n_kv_heads;
  push.row_stride = args.row_stride;
  push.table_stride = args.table_stride;
  push.layer_offset = args.layer_offset_bytes;
  push.norm_eps = args.norm_eps;
  dispatch_rows(
      recorder, *pipeline_, push, args.rows,
      {vk::updates(args.qkv), vk::reads(args.rope_table), vk::reads(args.positions),
       vk::reads(args.row_seq), vk::reads(args.block_table), vk::reads(args.q_norm),
       vk::reads(args.k_norm), vk::reads(args.bias), vk::writes(args.kv)},
      [&](uint32_t rows) { return cost(rows); },
      [&](RopeKvHeadsPush& moved, uint32_t first, uint32_t rows) {
        move_rows(moved, first);
        const uint32_t kv_parts = shape_.has_values ? 2 : 1;
        return vk::Grid{rows, shape_.n_heads + kv_parts * shape_.n_kv_heads};
      });
}

void RopeKv::record(vk::Recorder& recorder, const Args& args) const {
  if (by_heads()) return record_heads(recorder, args);
  RopeKvPush push;
  push.qkv = args.qkv.address();
  // Without a table qkv stands for it: an address must be of memory even where nothing is read.
  push.rope_table = (shape_.rope_dims > 0 ? args.rope_table : args.qkv).address();
  push.positions = args.positions.address();
  push.row_seq = args.row_seq.address();
  push.block_table = args.block_table.address();
  push.n_heads = shape_.n_heads;
  push.n_kv_heads = shape_.n_kv_heads;
  push.row_stride = args.row_stride;
  push.table_stride = args.table_stride;
  push.layer_offset = args.layer_offset_bytes;

  const uint32_t kv_elements = shape_.n_kv_heads * shape_.head_dim + v_elements();
  const uint32_t n_tasks = shape_.n_heads * shape_.rope_dims / 2 + kv_elements / 2;
  const uint32_t tasks_per_group = kWorkgroupSize * kTasksPerLane;
  dispatch_rows(
      recorder, *pipeline_, push, args.rows,
      {vk::updates(args.qkv), vk::reads(args.rope_table), vk::reads(args.positions),
       vk::reads(args.row_seq), vk::reads(args.block_table), vk::writes(args.kv)},
      [&](uint32_t rows) { return cost(rows); },
      [&](RopeKvPush& moved, uint32_t first, uint32_t rows) {
        move_rows(moved, first);
        return vk::Grid{rows, (n_tasks + tasks_per_group - 1) / tasks_per_group};
      });
}

}  // namespace pumice::ops
