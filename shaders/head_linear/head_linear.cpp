#include "shaders/head_linear/head_linear.hpp"

#include "format/resident_layout.hpp"
#include "shaders/common/row_shares.hpp"
#include "shaders/common/tuning.hpp"
#include "shaders/head_linear/head_linear.h"
#include "shaders/head_linear/head_linear_transposed.h"
#include "shaders/spirv.hpp"

namespace pumice::ops {
namespace {

constexpr uint32_t kOutputs = 32;  // of a workgroup

uint32_t groups_of(uint32_t n) { return (n + kOutputs - 1) / kOutputs; }

/// To some of the rows.
void move_rows(HeadLinearPush& push, Share rows) {
  push.x += uint64_t{rows.first} * push.x_stride * 4;
  push.y += uint64_t{rows.first} * push.y_stride * 4;
  push.rows = rows.n;
}

}  // namespace

Result<HeadLinear> HeadLinear::plan(vk::PipelineLibrary& pipelines, const WeightType& type,
                                    bool transposed, uint32_t n_slices) {
  HeadLinear op;
  op.transposed_ = transposed;
  PUMICE_TRY(const vk::ShaderModule module,
             find_spirv(transposed ? "head_linear_transposed" : "head_linear", type));
  const auto declare = [&](const auto& spec) {
    return declare_kernel<HeadLinearPush>(pipelines, module, spec);
  };
  if (transposed) {
    PUMICE_TRY(op.single_, declare(HeadLinearTransposedSpec{}));
    return op;
  }
  if (n_slices == 0) {
    const auto facts = vk::TuningFacts().set("type", tuning_word(type));
    n_slices = take_row(pipelines, "head_linear", facts).number("n_slices");
  }
  const uint32_t lanes = n_slices * kOutputs;
  PUMICE_TRY(op.single_, declare(HeadLinearSpec{.workgroup_size = lanes, .tile_rows = 1}));
  PUMICE_TRY(op.tiled_, declare(HeadLinearSpec{.workgroup_size = lanes, .tile_rows = kTileRows}));
  return op;
}

/// What a head has, and the push constants of any part.
struct HeadLinear::Prepared {
  HeadLinearPush push;
  uint32_t n_out = 0;
  uint32_t y_width = 0;  ///< of all heads
};

HeadLinear::Prepared HeadLinear::prepare(const Args& args) const {
  const WeightMatrix& weights = args.weights;
  PUMICE_CHECK(args.n_heads > 0 && weights.n_rows % args.n_heads == 0, "heads of different sizes");
  const uint32_t head_rows = weights.n_rows / args.n_heads;
  const uint32_t n_in = transposed_ ? args.n_rows : weights.n_cols;
  const uint32_t n_out = transposed_ ? weights.n_cols : args.n_rows;
  PUMICE_CHECK(args.first_row + args.n_rows <= head_rows && n_in <= args.x_head_stride,
               "a head has fewer numbers or rows");
  PUMICE_CHECK(args.x_stride % 4 == 0 && args.x_head_stride % 4 == 0 && args.x.address() % 16 == 0,
               "x must be 16-byte aligned");
  const uint32_t n_kept = args.x_head_stride - n_in;
  const uint32_t y_width = args.n_heads * (n_out + n_kept);
  PUMICE_CHECK(args.y_stride >= y_width, "y_stride must hold all heads");

  HeadLinearPush push;
  push.x = args.x.address();
  push.y = args.y.address();
  push.grid = weights.grid.address();
  push.n = args.n_rows;
  push.k = weights.n_cols;
  push.n_col_tiles = static_cast<uint32_t>(n_col_tiles(*weights.type, weights.n_cols));
  push.head_rows = head_rows;
  push.first_of_head = args.first_row;
  push.n_kept = n_kept;
  push.x_stride = args.x_stride;
  push.x_head_stride = args.x_head_stride;
  push.y_stride = args.y_stride;
  return {push, n_out, y_width};
}

void HeadLinear::record_kept(vk::Recorder& recorder, const Args& args) const {
  Prepared at = prepare(args);
  if (at.push.n_kept == 0) return;
  at.push.weights = args.weights.parts[0].range.address();
  at.push.first_row = at.push.part_rows = 0;  // no product is this dispatch's
  dispatch_rows(
      recorder, *single_, at.push, args.rows,
      {vk::reads(args.x), vk::writes_columns(args.y, args.rows, uint64_t{args.y_stride} * 4,
                                             uint64_t{at.y_width} * 4)},
      [&](uint64_t rows) { return vk::Cost{.bytes = rows * args.n_heads * at.push.n_kept * 8}; },
      [&](HeadLinearPush& moved, uint32_t first_row, uint32_t rows) {
        move_rows(moved, {first_row, rows});
        return vk::Grid{groups_of(at.n_out + at.push.n_kept), args.n_heads, rows};
      });
}

void HeadLinear::record(vk::Recorder& recorder, const Args& args) const {
  const WeightMatrix& weights = args.weights;
  Prepared prepared = prepare(args);
  HeadLinearPush& push = prepared.push;
  const uint32_t n_out = prepared.n_out;
  const uint32_t n_kept = push.n_kept;
  const uint32_t y_width = prepared.y_width;
  const uint32_t tile_rows = transposed_ || args.rows == 1 ? 1 : kTileRows;
  const vk::Pipeline& pipeline = tile_rows == 1 ? *single_ : *tiled_;
  const uint64_t row_bytes = row_group_bytes(*weights.type, weights.n_cols) / kRowGroup;
  vk::Access y =
      vk::writes_columns(args.y, args.rows, uint64_t{args.y_stride} * 4, uint64_t{y_width} * 4);
  for (const WeightMatrixPart& part : weights.parts) {
    push.weights = part.range.address();
    push.first_row = part.first_row;
    push.part_rows = part.n_rows;
    const bool first = &part == &weights.parts[0];
    // Outputs are of one part's rows, so its dispatches write disjoint elements of y and no barrier
    // may come between them; sums over rows that lie in several parts are added one after the
    // other.
    if (!first) y.mode = vk::AccessMode::kReadWrite;
    const std::initializer_list<vk::Access> none;
    const std::initializer_list<vk::Access> all = {vk::reads(part.range), vk::reads(args.x), y};
    dispatch_parts(
        recorder, pipeline, push, args.rows, args.n_heads, first || transposed_ ? all : none,
        [&](uint64_t rows, uint64_t n_heads) {
          const uint64_t n_weight_rows = n_heads * args.n_rows;
          const uint64_t flops = 2 * rows * n_weight_rows * weights.n_cols;
          const uint64_t numbers = n_heads * (args.x_head_stride + n_out + n_kept);
          return vk::Cost{.bytes = n_weight_rows * row_bytes * part.n_rows / weights.n_rows +
                                   rows * numbers * 4 * part.n_rows / weights.n_rows,
                          .flops = flops * part.n_rows / weights.n_rows};
        },
        [&](HeadLinearPush& moved, Share rows, Share heads) {
          move_rows(moved, rows);
          moved.x += uint64_t{heads.first} * args.x_head_stride * 4;
          moved.y += uint64_t{heads.first} * (n_out + n_kept) * 4;
          moved.first_of_head += heads.first * moved.head_rows;
          const uint32_t outputs =
              transposed_ ? groups_of(n_out) + groups_of(n_kept) : groups_of(n_out + n_kept);
          return vk::Grid{outputs, heads.n, (rows.n + tile_rows - 1) / tile_rows};
        });
  }
}

}  // namespace pumice::ops
