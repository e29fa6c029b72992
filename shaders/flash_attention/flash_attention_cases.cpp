#include <cmath>
#include <optional>

#include "shaders/flash_attention/attention_case.hpp"
#include "shaders/flash_attention/flash_attention.hpp"
#include "shaders/flash_attention/matrix_tuning.hpp"
#include "shaders/flash_attention/subgroup_tuning.hpp"
#include "shaders/op_case.hpp"
#include "shaders/spirv.hpp"

namespace pumice::ops {
namespace {

struct Case {
  FlashAttention::Shape shape;
  std::vector<AttentionChunk> chunks;  // one sequence each
  uint32_t split_tokens = 0;
  uint32_t max_split_rows = 16;
  bool indirect = false;
  float q_scale = 1.0f;
  std::optional<FlashAttention::Path> path = {};  // else the one the device is tuned to
  bool matrix_rows = false;
  bool spread_rows = false;  ///< rows of matrices have splits of their own
  bool shared_q = false;     ///< of single rows by subgroups
  bool own_rows = false;     ///< on matrix cores, each subgroup has its own
  bool wide_reduce = false;  ///< partials are merged as on a GPU, else as the device is tuned
  uint32_t y_padding = 0;    ///< floats of a row of y that are another's
};

/// Rows of y with others' floats behind them, which no kernel may write.
void pad_rows(Expectation& expected, uint32_t n_rows, uint32_t padding) {
  const size_t width = expected.reference.size() / n_rows;
  Expectation padded{.name = expected.name, .output = expected.output};
  for (uint32_t row = 0; row < n_rows; ++row) {
    const auto append = [&](const std::vector<double>& from, std::vector<double>& to, double gap) {
      const auto first = from.begin() + static_cast<std::ptrdiff_t>(row * width);
      to.insert(to.end(), first, first + static_cast<std::ptrdiff_t>(width));
      to.insert(to.end(), padding, gap);
    };
    append(expected.reference, padded.reference, std::numeric_limits<double>::quiet_NaN());
    append(expected.bound, padded.bound, 0);
  }
  expected = std::move(padded);
}

Result<FlashAttention::Tuning> matrix_tuning_of(const Case& test, const vk::DevicePlan& plan) {
  if (!test.own_rows) return matrix_attention_tuning(plan, test.shape);
  if (std::string obstacle = half_matrix_obstacle(plan); !obstacle.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "{}", obstacle);
  }
  const FlashAttention::Tuning tuning = own_rows_tuning(plan);
  const std::string obstacle = matrix_attention_obstacle(plan, test.shape, tuning);
  if (!obstacle.empty()) return make_error(ErrorCode::kInvalidArgument, "{}", obstacle);
  return tuning;
}

Result<PreparedOp> prepare(OpBed& bed, const Case& test) {
  const FlashAttention::Shape& shape = test.shape;
  const AttentionInputs in = attention_inputs(test.chunks);
  const PagedKvCase paged({.type = shape.kv_type,
                           .n_layers = kAttentionLayers,
                           .n_kv_heads = shape.n_kv_heads,
                           .head_dim = shape.head_dim,
                           .has_values = shape.latent_dim == 0,
                           .v_dim = shape.v_dim},
                          in.contexts);
  FlashAttention::Tuning tuning = FlashAttention::tuned(bed.pipelines());
  // Small tiles: CPU drivers compile for seconds.
  if (test.path == FlashAttention::Path::kPortable) tuning = {.max_tile_rows = 8};
  if (test.path == FlashAttention::Path::kBroadcast) {
    tuning = {FlashAttention::Path::kBroadcast, bed.device()->plan().subgroup_size, 2};
  }
  if (test.path == FlashAttention::Path::kMatrix) {
    PUMICE_TRY(tuning, matrix_tuning_of(test, bed.device()->plan()));
    tuning.matrix_rows = test.matrix_rows;
  }
  if (test.wide_reduce) {
    tuning.reduce_workgroup_size = 128;
    tuning.reduce_flight = 8;
  }
  FlashAttention::Tuning row_tuning = tuning;
  if (test.path == FlashAttention::Path::kMatrix && !test.matrix_rows && !test.spread_rows) {
    row_tuning = FlashAttention::tuned(bed.pipelines());
  }
  if (test.path == FlashAttention::Path::kSubgroup) {
    row_tuning = subgroup_tuning(bed.device()->plan(), test.shared_q);
  }
  PUMICE_TRY(const FlashAttention op,
             FlashAttention::plan(bed.pipelines(), shape, tuning, row_tuning));
  AttentionPlan plan;
  plan_attention(in.chunks,
                 {.tile_tokens = op.tile_tokens(),
                  .split_tokens = test.split_tokens,
                  .max_split_rows = test.max_split_rows,
                  .window = shape.window,
                  .row_splits = op.row_splits()},
                 plan);

  FlashAttention::Args args{
      .q_stride = (shape.n_heads + 2 * shape.n_kv_heads) * shape.head_dim,
      .table_stride = paged.table_stride(),
      .layer_offset_bytes = paged.layout().layer_offset_bytes(kAttentionLayer),
      .scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim))};
  const auto q = OpBed::normal_floats(size_t{in.rows} * args.q_stride, 1, test.q_scale);
  AttentionKv kv;
  PUMICE_TRY(args.q, bed.input(q));
  PUMICE_TRY(args.kv, fill_attention_kv(bed, paged, in, kv));
  PUMICE_TRY(args.block_table,
             bed.input(paged.table(args.kv.address(), blocks_behind(shape.window, in))));
  PUMICE_TRY(args.positions, bed.input(in.positions));
  if (test.y_padding > 0) args.y_stride = shape.n_heads * shape.value_dim() + test.y_padding;
  PUMICE_TRY(args.y, bed.output(uint64_t{in.rows} *
                                (shape.n_heads * shape.value_dim() + test.y_padding) * 4));
  PUMICE_TRY(args.carried, bed.output(FlashAttention::kCarriedBytes));
  std::vector<float> sinks;
  if (shape.sinks) {
    sinks = OpBed::normal_floats(shape.n_heads, 7, 3 * test.q_scale);
    PUMICE_TRY(args.sinks, bed.input(sinks));
  }
  FlashAttention::ReduceArgs reduce{
      .y = args.y, .sinks = args.sinks, .n_partials = plan.n_partials};
  if (plan.n_partials > 0) {
    PUMICE_TRY(args.partial_stats, bed.output(op.partial_stats_bytes(plan.n_partials)));
    PUMICE_TRY(args.partial_y, bed.output(op.partial_y_bytes(plan.n_partials)));
    reduce.partial_stats = args.partial_stats;
    reduce.partial_y = args.partial_y;
    reduce.n_items = static_cast<uint32_t>(plan.reduce_items.size());
    PUMICE_TRY(reduce.items, bed.input(plan.reduce_items));
    if (test.indirect) {
      const auto grid = op.reduce_grid_of(reduce.n_items);
      PUMICE_TRY(reduce.grid, bed.input(std::span<const uint32_t>(grid)));
    }
  }
  FlashAttention::Args tiles = args;
  tiles.n_items = static_cast<uint32_t>(plan.tile_items.size());
  tiles.keys = plan.tile_keys;
  tiles.scores = plan.tile_scores;
  tiles.most_keys = plan.most_tile_keys;
  FlashAttention::Args rows = args;
  rows.n_items = static_cast<uint32_t>(plan.row_items.size());
  rows.keys = plan.row_keys;
  rows.scores = plan.row_scores;
  rows.most_keys = plan.most_row_keys;
  if (tiles.n_items > 0) {
    PUMICE_TRY(tiles.items, bed.input(plan.tile_items));
  }
  if (rows.n_items > 0) {
    PUMICE_TRY(rows.items, bed.input(plan.row_items));
  }
  if (test.indirect) {
    const auto tile_grid = op.tile_grid_of(tiles.n_items);
    const auto row_grid = op.row_grid_of(rows.n_items);
    PUMICE_TRY(tiles.grid, bed.input(std::span<const uint32_t>(tile_grid)));
    PUMICE_TRY(rows.grid, bed.input(std::span<const uint32_t>(row_grid)));
  }

  Expectation expected = expect_attention(shape, op.tile_math(), op.row_math(), in, q,
                                          args.q_stride, args.scale, kv, sinks);
  expected.output = args.y;
  if (test.y_padding > 0) pad_rows(expected, in.rows, test.y_padding);
  return PreparedOp{.record =
                        [=](vk::Recorder& recorder) {
                          if (tiles.n_items > 0) op.record_tiles(recorder, tiles);
                          if (rows.n_items > 0) op.record_rows(recorder, rows);
                          if (reduce.n_items > 0) op.record_reduce(recorder, reduce);
                        },
                    .expected = {std::move(expected)}};
}

const char* path_name(FlashAttention::Path path) {
  switch (path) {
    case FlashAttention::Path::kBroadcast:
      return "broadcast";
    case FlashAttention::Path::kMatrix:
      return "matrix";
    case FlashAttention::Path::kSubgroup:
      return "subgroup";
    default:
      return "portable";
  }
}

bool is_supported(const Case& test, const vk::DevicePlan& plan) {
  switch (test.path.value_or(FlashAttention::Path::kPortable)) {
    case FlashAttention::Path::kBroadcast:
      return FlashAttention::broadcast_supported(plan);
    case FlashAttention::Path::kSubgroup:
      return subgroup_attention_obstacle(plan, subgroup_tuning(plan, test.shared_q)).empty();
    case FlashAttention::Path::kMatrix:
      return matrix_tuning_of(test, plan).ok() &&
             find_spirv(test.own_rows ? "flash_attention.matrix_rows" : "flash_attention.matrix")
                 .ok();
    default:
      return true;
  }
}

std::string name_of(const Case& test) {
  const FlashAttention::Shape& s = test.shape;
  std::string chunks;
  for (const AttentionChunk& chunk : test.chunks) {
    chunks += fmt::format("{}{}+{}", chunks.empty() ? "" : ",", chunk.before, chunk.rows);
  }
  return fmt::format("heads={}/{} head_dim={} {} context={}{}{}{}", s.n_heads, s.n_kv_heads,
                     s.head_dim, s.kv_type.name(), chunks,
                     test.split_tokens > 0 ? fmt::format(" split={}", test.split_tokens) : "",
                     test.indirect ? " indirect" : "",
                     test.q_scale == 1    ? ""
                     : test.q_scale > 100 ? " huge"
                                          : " peaked") +
         (s.window > 0 ? fmt::format(" window={}", s.window) : "") +
         (s.soft_cap > 0 ? fmt::format(" cap={}", s.soft_cap) : "") + (s.sinks ? " sinks" : "") +
         (s.latent_dim > 0 ? fmt::format(" latent={}", s.latent_dim) : "") +
         (s.v_dim > 0 ? fmt::format(" values={}", s.v_dim) : "") +
         (test.y_padding > 0 ? " strided" : "") +
         (test.path ? std::string(" ") + path_name(*test.path) : "") +
         (test.shared_q ? " shared q" : "") + (test.own_rows ? " own" : "") +
         (test.matrix_rows ? " rows" : "") + (test.spread_rows ? " spread rows" : "") +
         (test.wide_reduce ? " wide reduce" : "");
}

}  // namespace

std::vector<OpCase> flash_attention_cases() {
  using enum KvType;
  // One decode row at each context around block and tile edges, in one call.
  const std::vector<AttentionChunk> rows = {{0, 1},  {14, 1}, {15, 1},  {16, 1},  {62, 1},
                                            {63, 1}, {64, 1}, {199, 1}, {1010, 1}};
  // Chunks that begin and end anywhere, with decode rows among them.
  const std::vector<AttentionChunk> ragged = {{0, 17},  {63, 1}, {5, 33}, {200, 3},
                                              {15, 16}, {64, 1}, {47, 2}};
  // Chunks around a window of 100: within it, across its end, and beyond.
  const std::vector<AttentionChunk> straddling = {{60, 5},  {90, 40}, {99, 1},
                                                  {100, 1}, {203, 3}, {1010, 1}};
  const Case tests[] = {
      {.shape = {4, 4, 64, kF32}, .chunks = rows},
      {.shape = {4, 4, 64, kF32}, .chunks = ragged},
      {.shape = {4, 4, 64, kF32}, .chunks = rows, .split_tokens = 64},
      {.shape = {8, 2, 64, kF16}, .chunks = rows, .split_tokens = 128, .indirect = true},
      {.shape = {8, 2, 64, kF16}, .chunks = ragged, .indirect = true},
      {.shape = {8, 2, 64, kF16}, .chunks = ragged, .split_tokens = 16, .max_split_rows = 40},
      {.shape = {8, 4, 8, kF32}, .chunks = ragged},
      {.shape = {8, 4, 8, kF32}, .chunks = {{0, 130}, {1000, 1}}, .split_tokens = 256},
      {.shape = {3, 1, 16, kF16}, .chunks = ragged, .split_tokens = 48},
      {.shape = {5, 5, 80, kF16}, .chunks = {{0, 5}, {64, 1}, {100, 20}}},
      {.shape = {8, 1, 80, kF32}, .chunks = {{0, 5}, {64, 1}, {100, 20}}, .split_tokens = 64},
      {.shape = {8, 2, 128, kF16}, .chunks = {{63, 1}, {0, 40}, {300, 1}}, .split_tokens = 256},
      {.shape = {8, 2, 128, kF16}, .chunks = {{63, 1}, {0, 40}}, .q_scale = 30.0f},
      {.shape = {32, 1, 128, kF32}, .chunks = {{100, 1}, {0, 5}}},
      {.shape = {2, 1, 256, kF16}, .chunks = {{70, 1}, {10, 9}}, .split_tokens = 32},
      {.shape = {32, 1, 256, kF32}, .chunks = {{20, 2}, {64, 1}}},
      // Windows of one key, less than a block, a block, a little more, more than a KV tile; soft
      // caps that bend scores, that most scores reach, and that all do.
      {.shape = {4, 4, 64, kF32, 1}, .chunks = ragged},
      {.shape = {8, 2, 64, kF16, 5}, .chunks = ragged, .indirect = true},
      {.shape = {8, 2, 64, kF16, 16}, .chunks = ragged, .split_tokens = 16, .max_split_rows = 40},
      {.shape = {4, 2, 24, kF32, 17}, .chunks = ragged, .split_tokens = 32, .max_split_rows = 40},
      {.shape = {8, 2, 128, kF16, 100}, .chunks = straddling, .split_tokens = 64},
      {.shape = {4, 2, 64, kF32, 0, 50.0f}, .chunks = ragged, .q_scale = 30.0f},
      {.shape = {8, 2, 64, kF16, 0, 5.0f}, .chunks = rows, .split_tokens = 64, .q_scale = 4.0f},
      {.shape = {4, 2, 8, kF32, 0, 5.0f}, .chunks = ragged, .q_scale = 3.0f},
      {.shape = {4, 4, 16, kF32, 0, 5.0f}, .chunks = ragged, .q_scale = 1e30f},
      {.shape = {8, 1, 80, kF32, 17, 50.0f},
       .chunks = ragged,
       .split_tokens = 48,
       .q_scale = 30.0f},
      {.shape = {2, 1, 256, kF16, 100, 50.0f}, .chunks = straddling, .q_scale = 8.0f},
      {.shape = {8, 2, 64, kQ8_0}, .chunks = ragged},
      {.shape = {8, 2, 128, {kQ8_0, kQ4_0}, 100}, .chunks = straddling, .split_tokens = 64},
      {.shape = {2, 1, 256, {kQ4_0, kF16}}, .chunks = {{70, 1}, {10, 9}}, .split_tokens = 32},
      {.shape = {8, 1, 512, kF16}, .chunks = {{70, 1}, {10, 9}}, .split_tokens = 32},
      {.shape = {2, 2, 328, kF32, 17}, .chunks = {{40, 3}, {21, 1}}},
      {.shape = {2, 1, 512, kQ8_0}, .chunks = {{20, 2}, {64, 1}}},
      {.shape = {8, 2, 64, kF16, 0, 0, true}, .chunks = ragged, .split_tokens = 48},
      // Values that are a part of the keys: DeepSeek's, of few heads, and others.
      {.shape = {4, 1, 80, kF32, 0, 0, false, 64}, .chunks = ragged},
      {.shape = {6, 1, 576, kF16, 0, 0, false, 512}, .chunks = {{70, 1}, {10, 9}}},
      {.shape = {3, 1, 576, kF32, 0, 0, false, 512}, .chunks = {{33, 2}}, .split_tokens = 16},
      {.shape = {8, 2, 40, kBF16, 17, 5.0f, true, 24}, .chunks = ragged, .split_tokens = 32},
      {.shape = {128, 1, 288, {kQ8_0, kF16}, 0, 0, false, 256}, .chunks = {{70, 1}, {20, 2}}},
      // Partials of several groups of lanes in several rounds, some of which a row sees no key of; more
      // columns than lanes; lanes that are left over.
      {.shape = {4, 2, 128, kF16},
       .chunks = {{1010, 1}, {610, 3}},
       .split_tokens = 16,
       .wide_reduce = true},
      {.shape = {4, 2, 64, kF32, 700, 0, true},
       .chunks = {{1010, 1}, {15, 2}, {1200, 3}},
       .split_tokens = 16,
       .wide_reduce = true},
      {.shape = {3, 1, 576, kF16, 0, 0, false, 512},
       .chunks = {{300, 2}},
       .split_tokens = 16,
       .wide_reduce = true},
      {.shape = {2, 1, 80, kF32}, .chunks = {{600, 2}}, .split_tokens = 16, .wide_reduce = true},
      // Values smaller than keys: those of expanded latents, and others.
      {.shape = {2, 2, 192, kF32, 0, 0, false, 0, 128}, .chunks = {{40, 19}}, .y_padding = 4},
      {.shape = {4, 2, 40, {kF16, kQ8_0}, 17, 0, true, 0, 32}, .chunks = ragged},
  };
  // Every shape runs as the device is tuned; these on either path, whatever it is tuned to.
  const Case on_paths[] = {
      {.shape = {6, 2, 24, kF32}, .chunks = rows, .split_tokens = 128},
      {.shape = {2, 2, 64, kF16}, .chunks = ragged, .split_tokens = 16, .max_split_rows = 40},
      {.shape = {6, 2, 24, kF32, 5}, .chunks = ragged, .split_tokens = 16, .max_split_rows = 40},
      {.shape = {2, 2, 64, kF16, 100, 50.0f},
       .chunks = straddling,
       .split_tokens = 64,
       .q_scale = 30.0f},
      {.shape = {6, 2, 24, kF32, 17, 5.0f}, .chunks = rows, .q_scale = 30.0f},
      {.shape = {2, 2, 40, {kBF16, kF32}}, .chunks = ragged},
      {.shape = {6, 2, 96, {kQ8_0, kQ4_0}}, .chunks = ragged, .split_tokens = 48},
      {.shape = {4, 2, 32, {kQ4_0, kQ8_0}, 17}, .chunks = rows},
      {.shape = {4, 1, 512, kF16}, .chunks = {{33, 1}, {10, 9}}, .split_tokens = 32},
      {.shape = {4, 2, 32, kF32, 17, 0, true}, .chunks = ragged, .split_tokens = 16},
      {.shape = {4, 2, 32, kF32, 0, 0, true}, .chunks = rows, .q_scale = 30.0f},
      {.shape = {5, 1, 48, kF32, 0, 0, false, 40}, .chunks = ragged, .split_tokens = 48},
      {.shape = {4, 1, 72, kF16, 0, 0, false, 64}, .chunks = ragged},
      {.shape = {4, 2, 96, kQ8_0, 0, 0, false, 64}, .chunks = ragged},
      {.shape = {4, 1, 160, {kQ4_0, kF32}, 0, 0, false, 128}, .chunks = rows},
      {.shape = {4, 4, 48, kF32, 0, 0, false, 0, 40}, .chunks = ragged, .y_padding = 12},
      {.shape = {4, 2, 64, kF16, 0, 0, false, 0, 24}, .chunks = rows, .split_tokens = 64},
      {.shape = {8, 2, 96, kQ8_0, 17, 0, true, 0, 64}, .chunks = ragged, .split_tokens = 16},
  };
  // On matrix cores: every common head_dim and some that are no whole matrices, tiles of single
  // rows, more heads than a tile has rows, rows that see none of a split.
  const Case on_matrices[] = {
      {.shape = {8, 2, 64, kF16}, .chunks = ragged},
      {.shape = {8, 2, 64, kF32}, .chunks = ragged, .indirect = true},
      {.shape = {4, 4, 64, kF16}, .chunks = rows, .split_tokens = 64, .matrix_rows = true},
      {.shape = {8, 2, 64, kF16}, .chunks = ragged, .split_tokens = 16, .max_split_rows = 40},
      {.shape = {5, 5, 80, kF16}, .chunks = {{0, 5}, {64, 1}, {100, 20}}, .matrix_rows = true},
      {.shape = {6, 2, 96, kF32}, .chunks = {{0, 35}, {64, 1}, {100, 20}}, .split_tokens = 64},
      {.shape = {8, 2, 128, kF16}, .chunks = {{63, 1}, {0, 40}, {300, 5}}, .split_tokens = 256},
      {.shape = {8, 2, 128, kF16}, .chunks = {{63, 1}, {0, 40}}, .q_scale = 30.0f},
      {.shape = {64, 1, 32, kF16}, .chunks = {{100, 1}, {0, 5}}, .matrix_rows = true},
      {.shape = {2, 1, 256, kF16}, .chunks = {{70, 1}, {10, 9}}, .split_tokens = 32},
      {.shape = {2, 2, 8, kF16}, .chunks = ragged, .matrix_rows = true},
      {.shape = {6, 2, 24, kF32}, .chunks = {{0, 130}, {1000, 17}}, .split_tokens = 256},
      {.shape = {2, 2, 8, kF16, 1}, .chunks = ragged, .matrix_rows = true},
      {.shape = {8, 2, 64, kF16, 5}, .chunks = ragged, .indirect = true},
      {.shape = {8, 2, 64, kF32, 16}, .chunks = ragged, .split_tokens = 16, .max_split_rows = 40},
      {.shape = {5, 5, 80, kF16, 17}, .chunks = ragged, .split_tokens = 32, .matrix_rows = true},
      {.shape = {8, 2, 128, kF16, 100}, .chunks = straddling, .split_tokens = 64},
      {.shape = {4, 2, 64, kF32, 0, 50.0f}, .chunks = ragged, .q_scale = 30.0f},
      {.shape = {6, 2, 24, kF16, 0, 5.0f}, .chunks = rows, .q_scale = 30.0f, .matrix_rows = true},
      {.shape = {2, 1, 256, kF16, 100, 50.0f}, .chunks = straddling, .q_scale = 8.0f},
      {.shape = {6, 2, 96, {kQ8_0, kQ4_0}}, .chunks = ragged, .matrix_rows = true},
      {.shape = {4, 2, 64, {kQ4_0, kBF16}, 17}, .chunks = ragged},
      {.shape = {2, 2, 40, {kBF16, kF16}}, .chunks = ragged},
      {.shape = {8, 2, 64, kF16, 100, 0, true}, .chunks = straddling, .split_tokens = 64},
      {.shape = {4, 2, 64, kF32, 0, 0, true}, .chunks = ragged, .matrix_rows = true},
      {.shape = {2, 2, 192, kF16, 0, 0, false, 0, 128}, .chunks = {{40, 19}}, .y_padding = 4},
      {.shape = {8, 2, 96, kQ8_0, 17, 0, true, 0, 64}, .chunks = ragged, .split_tokens = 16},
      {.shape = {3, 3, 48, kF32, 0, 0, false, 0, 24},
       .chunks = ragged,
       .split_tokens = 16,
       .max_split_rows = 40,
       .matrix_rows = true},
      {.shape = {8, 2, 64, kF16}, .chunks = rows, .split_tokens = 256, .spread_rows = true},
  };
  // The same where each subgroup has rows of its own.
  const Case on_own_rows[] = {
      {.shape = {8, 2, 64, kF16}, .chunks = ragged, .indirect = true},
      {.shape = {4, 2, 64, kF32},
       .chunks = ragged,
       .split_tokens = 16,
       .max_split_rows = 40,
       .matrix_rows = true},
      {.shape = {5, 5, 80, kF16, 17}, .chunks = ragged, .split_tokens = 32, .matrix_rows = true},
      {.shape = {8, 2, 128, kF16, 100, 0, true}, .chunks = straddling, .split_tokens = 64},
      {.shape = {8, 2, 128, kQ8_0}, .chunks = {{63, 1}, {0, 40}, {300, 5}}, .q_scale = 30.0f},
      {.shape = {24, 1, 32, kF16}, .chunks = {{100, 1}, {0, 5}}, .matrix_rows = true},
      {.shape = {8, 2, 64, kF16}, .chunks = rows, .split_tokens = 256, .spread_rows = true},
      {.shape = {2, 2, 8, kF16, 1}, .chunks = ragged, .matrix_rows = true},
      {.shape = {6, 2, 24, kF32, 0, 5.0f}, .chunks = ragged, .q_scale = 30.0f},
      {.shape = {6, 2, 96, {kQ8_0, kQ4_0}}, .chunks = ragged, .matrix_rows = true},
      {.shape = {4, 2, 64, {kQ4_0, kBF16}, 17}, .chunks = ragged},
      {.shape = {4, 2, 128, {kF16, kQ8_0}, 0, 0, false, 0, 64},
       .chunks = {{0, 130}, {1000, 17}},
       .split_tokens = 256},
      {.shape = {3, 3, 48, kF32, 0, 0, true, 0, 24}, .chunks = ragged, .matrix_rows = true},
  };
  // Rows around a window of 100, behind whole KV tiles and within the first.
  const std::vector<AttentionChunk> windowed = {{40, 1}, {99, 1}, {100, 1}, {203, 1}, {1010, 1}};
  // Few heads and columns: CPU drivers, which have subgroups of 8, compile for seconds.
  const Case by_subgroups[] = {
      {.shape = {4, 2, 64, kF16}, .chunks = rows, .split_tokens = 128, .indirect = true},
      {.shape = {2, 1, 128, kF16}, .chunks = rows, .split_tokens = 256, .shared_q = true},
      {.shape = {4, 4, 8, kF32}, .chunks = rows},
      {.shape = {6, 2, 24, kF32}, .chunks = rows, .split_tokens = 48, .q_scale = 30.0f},
      {.shape = {2, 2, 80, kBF16}, .chunks = rows, .shared_q = true},
      {.shape = {10, 1, 16, kF16}, .chunks = {{100, 1}, {7, 1}}},
      {.shape = {2, 2, 40, kF16, 100, 50.0f}, .chunks = windowed, .q_scale = 8.0f},
      {.shape = {4, 2, 32, kF16, 100, 0, true}, .chunks = windowed, .split_tokens = 64},
      {.shape = {2, 2, 16, kF32, 1}, .chunks = rows},
      {.shape = {2, 1, 16, kF16}, .chunks = {{1500, 1}, {300, 1}, {100, 1}}, .split_tokens = 256},
      {.shape = {4, 4, 16, kF32, 0, 5.0f}, .chunks = rows, .q_scale = 1e30f},
      {.shape = {2, 1, 64, kQ8_0}, .chunks = rows, .split_tokens = 64, .shared_q = true},
      {.shape = {2, 1, 96, {kQ8_0, kQ4_0}}, .chunks = rows, .split_tokens = 48},
      {.shape = {2, 1, 32, {kQ4_0, kQ8_0}, 17}, .chunks = rows},
      {.shape = {2, 1, 48, kF32, 0, 0, false, 40}, .chunks = rows, .split_tokens = 48},
      {.shape = {2, 1, 160, kQ8_0, 17, 0, false, 128}, .chunks = {{70, 1}, {20, 1}}},
      {.shape = {2, 1, 96, kQ4_0, 0, 0, false, 64}, .chunks = rows},
      {.shape = {2, 2, 64, {kF16, kQ8_0}, 0, 0, false, 0, 32}, .chunks = rows, .y_padding = 4},
  };
  std::vector<OpCase> cases;
  const auto add = [&](const Case& test) {
    cases.push_back(
        {.op = "flash_attention",
         .name = name_of(test),
         .prepare = [test](OpBed& bed) { return prepare(bed, test); },
         .supported = [test](const vk::DevicePlan& plan) { return is_supported(test, plan); }});
  };
  for (const Case& test : tests) add(test);
  for (Case test : on_paths) {
    for (const auto path : {FlashAttention::Path::kPortable, FlashAttention::Path::kBroadcast}) {
      test.path = path;
      add(test);
    }
  }
  for (Case test : by_subgroups) {
    test.path = FlashAttention::Path::kSubgroup;
    add(test);
  }
  for (Case test : on_matrices) {
    test.path = FlashAttention::Path::kMatrix;
    add(test);
  }
  for (Case test : on_own_rows) {
    test.path = FlashAttention::Path::kMatrix;
    test.own_rows = true;
    add(test);
  }
  return cases;
}

}  // namespace pumice::ops
