#include "shaders/lora/lora.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "shaders/common/row_shares.hpp"
#include "shaders/lora/lora_expand.h"
#include "shaders/lora/lora_rows.h"
#include "shaders/lora/lora_shrink.h"
#include "shaders/spirv.hpp"

namespace pumice::ops {
namespace {

constexpr uint64_t kFloatBytes = sizeof(float);

vk::Access columns(const vk::BufferRange& range, uint32_t rows, uint32_t stride, uint32_t n,
                   vk::AccessMode mode) {
  vk::Access access = vk::writes_columns(range, rows, kFloatBytes * stride, kFloatBytes * n);
  access.mode = mode;
  return access;
}

}  // namespace

Result<Lora> Lora::plan(vk::PipelineLibrary& pipelines) {
  const LoraShrinkSpec shrink;
  const LoraExpandSpec expand;
  Lora op;
  op.outputs_per_workgroup_ = expand.workgroup_size;
  PUMICE_TRY(op.shrink_, declare_kernel<LoraShrinkPush>(pipelines, "lora_shrink", shrink));
  PUMICE_TRY(op.expand_, declare_kernel<LoraExpandPush>(pipelines, "lora_expand", expand));
  return op;
}

void Lora::record(vk::Recorder& recorder, const Args& args) const {
  PUMICE_CHECK(args.rows > 0 && args.n_in > 0 && args.n_out > 0, "adapters of nothing");
  PUMICE_CHECK(args.rank > 0 && args.rank % kRankGroup == 0, "ranks are padded to fours");
  PUMICE_CHECK(args.first_out + uint64_t{args.n_out} <= args.b_stride, "outputs that b has");
  const uint32_t n_quads = args.rank / kRankGroup;
  const uint64_t row_t = kFloatBytes * args.rank;
  LoraShrinkPush shrink;
  shrink.x = args.x.address();
  shrink.a = args.a.address();
  shrink.adapters = args.adapters.address();
  shrink.t = args.t.address();
  shrink.x_stride = args.x_stride;
  shrink.n = args.n_in;
  shrink.n_quads = n_quads;
  dispatch_rows(
      recorder, *shrink_, shrink, args.rows,
      {columns(args.x, args.rows, args.x_stride, args.n_in, vk::AccessMode::kRead),
       vk::reads(args.a), vk::reads(args.adapters), vk::writes(args.t)},
      [&](uint64_t rows) {
        const uint64_t weights = uint64_t{args.rank} * args.n_in;
        return vk::Cost{.bytes = kFloatBytes * (weights + rows * (args.n_in + args.rank)),
                        .flops = 2 * rows * weights};
      },
      [&](LoraShrinkPush& moved, uint64_t first, uint32_t rows) {
        moved.x += first * args.x_stride * kFloatBytes;
        moved.adapters += first * sizeof(uint32_t);
        moved.t += first * row_t;
        moved.rows = rows;
        return vk::Grid{n_quads, (rows + LORA_ROWS - 1) / LORA_ROWS};
      });
  LoraExpandPush expand;
  expand.t = args.t.address();
  expand.b = args.b.address() + kFloatBytes * kRankGroup * args.first_out;
  expand.adapters = args.adapters.address();
  expand.y = args.y.address();
  expand.b_stride = args.b_stride;
  expand.y_stride = args.y_stride;
  expand.n = args.n_out;
  expand.n_quads = n_quads;
  dispatch_rows(
      recorder, *expand_, expand, args.rows,
      {vk::reads(args.t), vk::reads(args.b), vk::reads(args.adapters),
       columns(args.y, args.rows, args.y_stride, args.n_out, vk::AccessMode::kReadWrite)},
      [&](uint64_t rows) {
        const uint64_t weights = uint64_t{args.rank} * args.n_out;
        return vk::Cost{
            .bytes = kFloatBytes * (weights + rows * (2 * uint64_t{args.n_out} + args.rank)),
            .flops = 2 * rows * weights};
      },
      [&](LoraExpandPush& moved, uint64_t first, uint32_t rows) {
        moved.t += first * row_t;
        moved.adapters += first * sizeof(uint32_t);
        moved.y += first * args.y_stride * kFloatBytes;
        moved.rows = rows;
        return vk::Grid{(args.n_out + outputs_per_workgroup_ - 1) / outputs_per_workgroup_,
                        (rows + LORA_ROWS - 1) / LORA_ROWS};
      });
}

void Lora::pack(std::span<const float> ranks, uint32_t n_ranks, uint32_t n, size_t rank_stride,
                size_t stride, std::span<float> out) {
  std::ranges::fill(out, 0.0f);
  for (uint32_t r = 0; r < n_ranks; ++r) {
    const size_t first = size_t{r / kRankGroup} * n * kRankGroup + r % kRankGroup;
    for (uint32_t i = 0; i < n; ++i) {
      out[first + size_t{i} * kRankGroup] = ranks[r * rank_stride + i * stride];
    }
  }
}

}  // namespace pumice::ops
