#include "shaders/rope/rope.hpp"

#include "shaders/common/row_shares.hpp"
#include "shaders/rope/rope.h"
#include "shaders/spirv.hpp"

namespace pumice::ops {
namespace {

constexpr uint32_t kWorkgroupSize = 64;

}  // namespace

Result<Rope> Rope::plan(vk::PipelineLibrary& pipelines, const Shape& shape) {
  if (shape.rope_dims == 0 || shape.rope_dims % 2 != 0 || shape.rope_dims > shape.head_dim) {
    return make_error(ErrorCode::kInvalidArgument,
                      "rope: {} rotated dimensions; they must be even and at most head_dim, {}",
                      shape.rope_dims, shape.head_dim);
  }
  const RopeSpec spec{.workgroup_size = kWorkgroupSize,
                      .head_dim = shape.head_dim,
                      .rope_dims = shape.rope_dims,
                      .halves = shape.pairs == RopePairs::kHalves ? 1u : 0u};
  Rope op;
  op.shape_ = shape;
  PUMICE_TRY(op.pipeline_, declare_kernel<RopePush>(pipelines, "rope", spec));
  return op;
}

void Rope::record(vk::Recorder& recorder, const Args& args) const {
  RopePush push;
  push.x = args.x.address();
  push.rope_table = args.rope_table.address();
  push.positions = args.positions.address();
  push.n_heads = args.n_heads;
  push.x_stride = args.x_stride;
  const uint32_t pairs = args.n_heads * shape_.rope_dims / 2;
  const uint64_t stride_bytes = uint64_t{args.x_stride} * 4;
  const uint64_t width = uint64_t{args.n_heads - 1} * shape_.head_dim + shape_.rope_dims;
  vk::Access access = vk::writes_columns(args.x, args.rows, stride_bytes, width * 4);
  access.mode = vk::AccessMode::kReadWrite;
  dispatch_rows(
      recorder, *pipeline_, push, args.rows,
      {access, vk::reads(args.rope_table), vk::reads(args.positions)},
      [&](uint32_t rows) {
        const uint64_t rotated = uint64_t{rows} * args.n_heads * shape_.rope_dims;
        return vk::Cost{.bytes = rotated * 8 + uint64_t{rows} * shape_.rope_dims * 4,
                        .flops = rotated * 3};
      },
      [&](RopePush& moved, uint32_t first, uint32_t rows) {
        moved.x += first * stride_bytes;
        moved.positions += uint64_t{first} * 4;
        return vk::Grid{rows, (pairs + kWorkgroupSize - 1) / kWorkgroupSize};
      });
}

}  // namespace pumice::ops
