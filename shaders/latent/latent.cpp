#include "shaders/latent/latent.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "format/resident_layout.hpp"
#include "shaders/common/row_shares.hpp"
#include "shaders/latent/head_transpose.h"
#include "shaders/latent/latent_heads.h"
#include "shaders/latent/latent_rows.h"
#include "shaders/spirv.hpp"

namespace pumice::ops {
namespace {

constexpr uint32_t kEight = 8;
constexpr uint32_t kTile = 32;  // of head_transpose.comp
constexpr uint64_t kFloatBytes = 4;
constexpr uint32_t kMostKeyGroups = 16;  // workgroups that share a key's tasks

}  // namespace

// ---- latent_rows

Result<LatentRows> LatentRows::plan(vk::PipelineLibrary& pipelines, uint32_t head_dim,
                                    KvType type) {
  if (head_dim == 0 || head_dim % kEight != 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "latent_rows: head_dim is {}; it must be a multiple of 8", head_dim);
  }
  PUMICE_TRY_STATUS(check_kv_types("latent_rows", type, head_dim));
  LatentRows op;
  op.head_dim_ = head_dim;
  op.type_ = type;
  const LatentRowsSpec spec{.head_dim = head_dim, .k_type = static_cast<uint32_t>(type)};
  PUMICE_TRY(op.pipeline_, declare_kernel<LatentRowsPush>(pipelines, "latent_rows", spec));
  return op;
}

void LatentRows::record(vk::Recorder& recorder, const Args& args) const {
  PUMICE_CHECK(args.first_key % kKvBlockTokens == 0, "latents from within a block");
  const LatentRowsSpec spec;
  const uint32_t n_parts =
      (head_dim_ / kEight * kKvBlockTokens + spec.workgroup_size - 1) / spec.workgroup_size;
  const uint32_t n_blocks = (args.n_keys + kKvBlockTokens - 1) / kKvBlockTokens;
  LatentRowsPush push;
  push.block_table = args.block_table.address() + args.first_key / kKvBlockTokens * 8;
  push.y = args.y.address();
  push.layer_offset = args.layer_offset_bytes;
  push.n_keys = args.n_keys;
  const uint64_t row_bytes = head_dim_ * kFloatBytes;
  dispatch_rows(
      recorder, *pipeline_, push, n_blocks,
      {vk::reads(args.block_table), vk::reads(args.kv),
       vk::writes(args.y.subrange(0, args.n_keys * row_bytes))},
      [&](uint64_t blocks) {
        return vk::Cost{.bytes =
                            blocks * kKvBlockTokens * (kv_row_bytes(type_, head_dim_) + row_bytes)};
      },
      [&](LatentRowsPush& moved, uint32_t first, uint32_t n) {
        moved.block_table += uint64_t{first} * 8;
        moved.y += uint64_t{first} * kKvBlockTokens * row_bytes;
        moved.n_keys = std::min(n * kKvBlockTokens, args.n_keys - first * kKvBlockTokens);
        return vk::Grid{n, n_parts};
      });
}

// ---- latent_heads

Result<LatentHeads> LatentHeads::plan(vk::PipelineLibrary& pipelines, const Shape& shape) {
  for (const uint32_t n : {shape.n_still, shape.n_turned, shape.v_dim}) {
    if (n % kEight == 0) continue;
    return make_error(ErrorCode::kInvalidArgument,
                      "latent_heads: keys of {} and {} numbers and values of {}; each must be a "
                      "multiple of 8",
                      shape.n_still, shape.n_turned, shape.v_dim);
  }
  if (shape.n_heads == 0 || (shape.type != KvType::kF32 && shape.type != KvType::kF16)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "latent_heads: {} heads in {}; it writes one or more, in f32 or f16",
                      shape.n_heads, kv_type_name(shape.type));
  }
  LatentHeads op;
  op.shape_ = shape;
  const LatentHeadsSpec spec{.head_dim = shape.n_still + shape.n_turned,
                             .n_turned = shape.n_turned,
                             .v_dim = shape.v_dim,
                             .kv_type = static_cast<uint32_t>(shape.type)};
  PUMICE_TRY(const vk::ShaderModule module, find_spirv("latent_heads"));
  PUMICE_TRY(op.pipeline_, declare_kernel<LatentHeadsPush>(
                               pipelines, module, spec,
                               fmt::format("latent_heads.{}", kv_type_name(shape.type))));
  return op;
}

void LatentHeads::record(vk::Recorder& recorder, const Args& args) const {
  const KvLayout layout = shape_.layout();
  const uint32_t n_blocks = (args.n_keys + kKvBlockTokens - 1) / kKvBlockTokens;
  LatentHeadsPush push;
  push.turned = args.turned.address();
  push.keys = args.keys.range.address();
  push.values = args.values.range.address();
  push.blocks = args.kv.address();
  push.turned_stride = args.turned_stride;
  push.stride = args.stride;
  push.key_head_stride = args.keys.head_stride;
  push.value_head_stride = args.values.head_stride;
  push.n_heads = shape_.n_heads;
  push.block_bytes = static_cast<uint32_t>(layout.block_bytes());
  const uint32_t n_tasks = shape_.n_heads * (layout.head_dim + shape_.v_dim) / 2;
  const LatentHeadsSpec spec;
  const uint32_t n_groups =
      std::min((n_tasks + spec.workgroup_size - 1) / spec.workgroup_size, kMostKeyGroups);
  const uint64_t row_floats = shape_.n_heads * (shape_.n_still + shape_.v_dim) + shape_.n_turned;
  dispatch_rows(
      recorder, *pipeline_, push, args.n_keys,
      {vk::reads(args.turned), vk::reads(args.keys.range), vk::reads(args.values.range),
       vk::writes(args.kv.subrange(0, n_blocks * layout.block_bytes()))},
      [&](uint64_t keys) {
        return vk::Cost{.bytes = keys * (row_floats * kFloatBytes +
                                         uint64_t{shape_.n_heads} * layout.row_bytes())};
      },
      [&](LatentHeadsPush& moved, uint32_t first, uint32_t n) {
        moved.first_key = first;
        return vk::Grid{n, n_groups};
      });
}

// ---- head_transpose

Result<HeadTranspose> HeadTranspose::plan(vk::PipelineLibrary& pipelines, const WeightType& type) {
  HeadTranspose op;
  PUMICE_TRY(const vk::ShaderModule module, find_spirv("head_transpose", type));
  PUMICE_TRY(op.pipeline_,
             declare_kernel<HeadTransposePush>(pipelines, module, HeadTransposeSpec{}));
  return op;
}

uint64_t HeadTranspose::bytes(uint32_t n_wanted, uint32_t n_rows, uint32_t n_cols) {
  return resident_bytes(weight_type("F32"), uint64_t{n_wanted} * n_cols, n_rows);
}

WeightMatrix HeadTranspose::result(const Args& args) {
  const uint32_t n_rows = args.n_wanted * args.weights.n_cols;
  return {.type = &weight_type("F32"),
          .n_rows = n_rows,
          .n_cols = args.weights.n_rows / args.n_heads,
          .parts = {{.range = args.y, .first_row = 0, .n_rows = n_rows}}};
}

void HeadTranspose::record(vk::Recorder& recorder, const Args& args) const {
  const WeightMatrix& weights = args.weights;
  PUMICE_CHECK(args.n_heads > 0 && weights.n_rows % args.n_heads == 0, "heads of different sizes");
  const uint32_t n_rows = weights.n_rows / args.n_heads;
  HeadTransposePush push;
  push.y = args.y.address();
  push.grid = weights.grid.address();
  push.n_rows = n_rows;
  push.n_cols = weights.n_cols;
  push.n_col_tiles = static_cast<uint32_t>(n_col_tiles(*weights.type, weights.n_cols));
  push.first_head = args.first_head;
  const uint32_t first_wanted = args.first_head * n_rows;
  const uint32_t end_wanted = first_wanted + args.n_wanted * n_rows;
  const uint64_t row_bytes = row_group_bytes(*weights.type, weights.n_cols) / kRowGroup;
  bool first = true;
  for (const WeightMatrixPart& part : weights.parts) {
    const uint32_t begin = std::max(part.first_row, first_wanted);
    const uint32_t end = std::min(part.first_row + part.n_rows, end_wanted);
    if (begin >= end) continue;
    push.weights = part.range.address();
    push.first_row = part.first_row;
    push.part_rows = part.n_rows;
    // Parts write different columns of y; what lies behind the last is the first one's.
    push.writes_ends = first ? 1 : 0;
    vk::Access y = vk::writes(args.y);
    if (!first) y.mode = vk::AccessMode::kReadWrite;
    const std::initializer_list<vk::Access> accesses = {vk::reads(part.range), y};
    const std::initializer_list<vk::Access> none;
    dispatch_rows(
        recorder, *pipeline_, push, args.n_wanted, first ? accesses : none,
        [&](uint64_t heads) {
          return vk::Cost{.bytes = heads * (end - begin) / args.n_wanted *
                                   (row_bytes + weights.n_cols * kFloatBytes)};
        },
        [&](HeadTransposePush& moved, uint32_t first_head, uint32_t n) {
          moved.first_y_head = first_head;
          return vk::Grid{(weights.n_cols + kTile - 1) / kTile, (n_rows + kTile - 1) / kTile, n};
        });
    first = false;
  }
}

}  // namespace pumice::ops
