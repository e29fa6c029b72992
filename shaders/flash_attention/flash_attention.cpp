#include "shaders/flash_attention/flash_attention.hpp"

#include <algorithm>
#include <bit>

#include "base/check.hpp"
#include "shaders/common/row_shares.hpp"
#include "shaders/common/tuning.hpp"
#include "shaders/flash_attention/attention_reduce.h"
#include "shaders/flash_attention/flash_attention.h"
#include "shaders/flash_attention/flash_attention_matrix.h"
#include "shaders/flash_attention/flash_attention_matrix_rows.h"
#include "shaders/flash_attention/matrix_tuning.hpp"
#include "shaders/flash_attention/subgroup_tuning.hpp"
#include "shaders/spirv.hpp"

namespace pumice::ops {
namespace {

constexpr const char* kBroadcastModule = "flash_attention.broadcast";

constexpr uint32_t kSharedBytes = 16 * 1024;  // what every device has

constexpr uint32_t kBroadcastRegisters = 64;  // of a lane, for y
constexpr uint32_t kBroadcastKeys = 4;        // of a KV tile, a lane

uint32_t value_dim_of(const FlashAttentionSpec& spec) {
  return spec.latent_dim != 0 ? spec.latent_dim : spec.v_dim;
}

/// What each lane of a workgroup needs to go on is so large, by each kernel's own layout.
uint32_t carried_bytes_of(const FlashAttentionSpec& spec, FlashAttention::Path path) {
  const uint32_t lanes = spec.workgroup_size;
  if (path != FlashAttention::Path::kBroadcast) return lanes * (spec.tile_rows * 16 + 8);
  const uint32_t column_chunks = (value_dim_of(spec) / 4 + lanes - 1) / lanes;
  return lanes * spec.tile_rows * (column_chunks * 16 + 8);
}

/// The same of flash_attention_matrix.comp.
uint32_t carried_bytes_of(const FlashAttentionSpec& spec, const FlashAttentionMatrixSpec& more) {
  const uint32_t column_tiles = (spec.v_dim + more.matrix_n - 1) / more.matrix_n;
  const uint32_t n_subgroups = spec.workgroup_size / more.subgroup_size;
  const uint32_t columns = (column_tiles + n_subgroups - 1) / n_subgroups * n_subgroups;
  const uint32_t row_rounds = (spec.tile_rows * 4 + spec.workgroup_size - 1) / spec.workgroup_size;
  return columns * more.matrix_n * spec.tile_rows * 4 + row_rounds * spec.workgroup_size * 8;
}

/// The same of flash_attention_matrix_rows.comp.
uint32_t carried_bytes_of(const FlashAttentionSpec& spec,
                          const FlashAttentionMatrixRowsSpec& more) {
  const uint32_t columns = (spec.v_dim + more.matrix_n - 1) / more.matrix_n * more.matrix_n;
  return columns * spec.tile_rows * 4 + spec.workgroup_size * 8;
}

/// A list whose items are cut by their keys.
struct KeyShares {
  uint32_t n_items, n_head_tiles, n_key_tiles;
  uint32_t n_carrying;  ///< workgroups at once, at most
  vk::Cost cost;        ///< of a workgroup with one KV tile
};

/// Dispatches over neighbouring workgroups' KV tiles, one after the other: as many workgroups as
/// one may have, and of as many tiles as the recorder's segments then hold.
void record_key_shares(vk::Recorder& recorder, const vk::Pipeline& pipeline,
                       const FlashAttentionPush& push, const KeyShares& list,
                       std::initializer_list<vk::Access> accesses) {
  const auto cost_of = [&](uint64_t n_workgroups, uint64_t n_key_tiles) {
    const uint64_t n = n_workgroups * n_key_tiles;
    return vk::Cost{list.cost.bytes * n, list.cost.flops * n, list.cost.arithmetic};
  };
  PUMICE_CHECK(list.n_key_tiles > 0, "attention: the longest item has no keys");
  const vk::SegmentLimit& limit = recorder.segment_limit();
  const uint32_t most =
      rows_within(limit, list.n_carrying, [&](uint32_t n) { return cost_of(n, 1); });
  const Shares items(list.n_items, std::max(1u, most / list.n_head_tiles));
  const Shares head_tiles(list.n_head_tiles, std::min(most, list.n_head_tiles));
  const uint32_t n_workgroups = items[0].n * head_tiles[0].n;
  const Shares key_tiles(list.n_key_tiles, rows_within(limit, list.n_key_tiles, [&](uint32_t n) {
                           return cost_of(n_workgroups, n);
                         }));
  for (uint32_t i = 0; i < items.size(); ++i) {
    for (uint32_t h = 0; h < head_tiles.size(); ++h) {
      for (uint32_t k = 0; k < key_tiles.size(); ++k) {
        FlashAttentionPush moved = push;
        moved.items += items[i].first * sizeof(AttentionItem);
        moved.first_head_tile = head_tiles[h].first;
        moved.first_key_tile = key_tiles[k].first;
        moved.n_key_tiles = key_tiles[k].n;
        recorder.dispatch(pipeline, moved, {items[i].n, head_tiles[h].n}, accesses,
                          cost_of(uint64_t{items[i].n} * head_tiles[h].n, key_tiles[k].n));
      }
    }
  }
}

/// Whether a tile of so many rows fits: shared memory of flash_attention.comp, or the registers
/// that other kernels keep y in.
bool tile_fits(const FlashAttentionSpec& spec, const FlashAttention::Tuning& tuning) {
  if (tuning.path == FlashAttention::Path::kSubgroup) return subgroup_tile_fits(spec, tuning);
  if (tuning.path == FlashAttention::Path::kBroadcast) {
    const uint32_t lane_columns =
        (value_dim_of(spec) / 4 + spec.workgroup_size - 1) / spec.workgroup_size * 4;
    return spec.tile_rows == 1 || spec.tile_rows * lane_columns <= kBroadcastRegisters;
  }
  const uint32_t q = spec.tile_rows * spec.head_dim * 4;
  const uint32_t weights = std::max(spec.tile_rows, 4u) * spec.workgroup_size * 4;
  return q + weights + spec.workgroup_size * 4 + spec.tile_rows * 4 +
             spec.workgroup_size / 16 * 8 <=
         kSharedBytes;
}

std::string module_name(const FlashAttention::Tuning& tuning) {
  switch (tuning.path) {
    case FlashAttention::Path::kBroadcast:
      return kBroadcastModule;
    case FlashAttention::Path::kSubgroup:
      return "flash_attention.subgroup";
    case FlashAttention::Path::kMatrix:
      return tuning.own_rows ? "flash_attention.matrix_rows" : "flash_attention.matrix";
    default:
      return "flash_attention";
  }
}

Status check(const vk::DevicePlan& device, const FlashAttention::Shape& shape,
             const FlashAttention::Tuning& tuning) {
  PUMICE_TRY_STATUS(FlashAttention::check_shape(shape));
  if (tuning.path == FlashAttention::Path::kMatrix) {
    const std::string obstacle = matrix_attention_obstacle(device, shape, tuning);
    if (obstacle.empty()) return {};
    return make_error(ErrorCode::kInvalidArgument, "attention on matrix cores: {}", obstacle);
  }
  if (tuning.path == FlashAttention::Path::kSubgroup) {
    const std::string obstacle = subgroup_attention_obstacle(device, tuning);
    if (obstacle.empty()) return {};
    return make_error(ErrorCode::kInvalidArgument, "attention of one token by subgroups: {}",
                      obstacle);
  }
  const bool broadcast = tuning.path == FlashAttention::Path::kBroadcast;
  if (broadcast && !FlashAttention::broadcast_supported(device)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "attention: this device has no broadcast path; use the portable one");
  }
  const uint32_t lanes = tuning.workgroup_size;
  if ((broadcast ? lanes != device.subgroup_size : lanes != 64 && lanes != 128) ||
      !std::has_single_bit(tuning.max_tile_rows) || tuning.max_tile_rows > 16) {
    return make_error(ErrorCode::kInvalidArgument,
                      "attention: tuned to {} lanes and {} rows; use {} and 1 to 16", lanes,
                      tuning.max_tile_rows, broadcast ? "the subgroup size" : "64 or 128");
  }
  return {};
}

/// The tiles on matrix cores; why not, where there are none.
Result<FlashAttention::Tuning> tuning_on_matrices(const vk::PipelineLibrary& pipelines,
                                                  const FlashAttention::Shape& shape) {
  return matrix_attention_tuning(pipelines, shape, [&](const FlashAttention::Tuning& tuning) {
    const Result<vk::ShaderModule> module = find_spirv(module_name(tuning));
    return module.ok() ? pipelines.obstacle(*module) : "its kernel is not in this build";
  });
}

vk::TuningFacts facts_of(Math math) { return vk::TuningFacts().set("math", math_name(math)); }

/// Whether matrix cores come first, if they take the shape; with kF32 no row may say so.
bool wants_matrices(const vk::PipelineLibrary& pipelines, Math math) {
  return math != Math::kF32 && take_row(pipelines, "attention", facts_of(math)).choice == "matrix";
}

std::string row_obstacle(const vk::PipelineLibrary& pipelines, const vk::TuningRow& row) {
  if (row.choice == "matrix") return "it computes in fp16";
  if (row.choice != "broadcast") return "";
  if (!FlashAttention::broadcast_supported(pipelines.device()->plan())) {
    return "it needs broadcasts in subgroups of a known size";
  }
  return pipelines.is_rejected(kBroadcastModule) ? "it failed this device's self-test" : "";
}

Result<const vk::Pipeline*> declare_reduce(vk::PipelineLibrary& pipelines,
                                           const FlashAttention::Shape& shape,
                                           const FlashAttention::Tuning& tuning) {
  const vk::DevicePlan& device = pipelines.device()->plan();
  const uint32_t most = std::min(device.max_workgroup_invocations, device.max_workgroup_size[0]);
  AttentionReduceSpec spec{.workgroup_size = tuning.reduce_workgroup_size,
                           .head_dim = shape.value_dim(),
                           .has_sinks = shape.sinks,
                           .flight = tuning.reduce_flight};
  if (spec.workgroup_size == 0) {
    const vk::TuningRow& row = take_row(
        pipelines, "attention_reduce", vk::TuningFacts().set("head_dim", spec.head_dim),
        [&](const vk::TuningRow& one) {
          return one.number("workgroup_size") <= most ? "" : "its workgroups are too large";
        });
    spec.workgroup_size = row.number("workgroup_size");
    spec.flight = row.number("flight");
  }
  return declare_kernel<AttentionReducePush>(pipelines, "attention_reduce", spec);
}

/// Adds what a kernel of `more` needs besides the constants of every kernel.
template <typename Spec>
void add_constants(const Spec& more, vk::PipelineRequest& request) {
  const auto constants = vk::constants_of(more);
  request.constants.insert(request.constants.end(), constants.begin(), constants.end());
  request.full_subgroups = true;
  request.subgroup_size = more.subgroup_size;
}

}  // namespace

Status FlashAttention::check_shape(const Shape& shape) {
  const bool latent = shape.latent_dim != 0;
  const uint32_t most = latent ? 1024 : 512;
  if (shape.head_dim == 0 || shape.head_dim % 8 != 0 || shape.head_dim > most) {
    return make_error(ErrorCode::kInvalidArgument,
                      "attention: head_dim is {}; it must be a multiple of 8 up to {}",
                      shape.head_dim, most);
  }
  if (shape.latent_dim % 8 != 0 || shape.latent_dim > std::min(shape.head_dim, 512u)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "attention: values are the first {} numbers of keys of {}; that must be a "
                      "multiple of 8 up to 512",
                      shape.latent_dim, shape.head_dim);
  }
  if (shape.v_dim % 8 != 0 || shape.v_dim > shape.head_dim || (latent && shape.v_dim != 0)) {
    return make_error(
        ErrorCode::kInvalidArgument,
        "attention: values of {} numbers{} and keys of {}; they must be a multiple of "
        "8 up to the keys'",
        shape.v_dim, latent ? " besides a latent" : "", shape.head_dim);
  }
  if (shape.n_kv_heads == 0 || shape.n_heads == 0 || shape.n_heads % shape.n_kv_heads != 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "attention: {} heads cannot share {} kv heads evenly", shape.n_heads,
                      shape.n_kv_heads);
  }
  const KvTypes kept = latent ? KvTypes(shape.kv_type.k) : shape.kv_type;
  PUMICE_TRY_STATUS(check_kv_types("attention", kept, shape.head_dim, shape.v_dim));
  // No model's comes near these; far beyond them reciprocals leave the range of a float.
  if (shape.soft_cap != 0 && !(shape.soft_cap >= 1e-3f && shape.soft_cap <= 1e6f)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "attention: soft_cap is {}; it must be 0 or from 0.001 to 1000000",
                      shape.soft_cap);
  }
  return {};
}

bool FlashAttention::broadcast_supported(const vk::DevicePlan& device) {
  const uint32_t lanes = device.subgroup_size;
  return device.subgroup.ballot && (lanes == 8 || lanes == 16 || lanes == 32);
}

FlashAttention::Tuning FlashAttention::tuned(const vk::PipelineLibrary& pipelines) {
  const vk::TuningRow& row =
      take_row(pipelines, "attention", facts_of(Math::kF32),
               [&](const vk::TuningRow& one) { return row_obstacle(pipelines, one); });
  const uint32_t tile_rows = row.number("tile_rows");
  if (row.choice == "broadcast") {
    return {.path = Path::kBroadcast,
            .workgroup_size = pipelines.device()->plan().subgroup_size,
            .max_tile_rows = tile_rows};
  }
  return {.workgroup_size = row.number("workgroup_size"), .max_tile_rows = tile_rows};
}

Result<FlashAttention::Tile> FlashAttention::declare(vk::PipelineLibrary& pipelines,
                                                     const Shape& shape, const Tuning& tuning,
                                                     bool single_rows) {
  const vk::DevicePlan& device = pipelines.device()->plan();
  const bool matrix = tuning.path == Path::kMatrix;
  const bool subgroup = tuning.path == Path::kSubgroup;
  FlashAttentionSpec spec{.workgroup_size = tuning.workgroup_size,
                          .head_dim = shape.head_dim,
                          .tile_rows = tuning.max_tile_rows,
                          .group = shape.n_heads / shape.n_kv_heads,
                          .k_type = static_cast<uint32_t>(shape.kv_type.k),
                          .window = shape.window,
                          .soft_cap = shape.soft_cap,
                          .v_type = static_cast<uint32_t>(shape.kv_type.v),
                          .has_sinks = shape.sinks,
                          .latent_dim = shape.latent_dim,
                          .v_dim = shape.v_dim != 0 ? shape.v_dim : shape.head_dim};
  // A lane has four columns of y.
  if (tuning.path == Path::kPortable) {
    spec.workgroup_size = std::max(spec.workgroup_size, std::bit_ceil(shape.value_dim() / 4));
  }
  while (!matrix && !tile_fits(spec, tuning)) spec.tile_rows /= 2;
  // Heads of a group beyond one tile are spread evenly over several.
  const uint32_t head_tiles = (spec.group + spec.tile_rows - 1) / spec.tile_rows;
  spec.tile_heads = (spec.group + head_tiles - 1) / head_tiles;
  if (single_rows) {
    const uint32_t step =
        tuning.own_rows ? tuning.max_tile_rows / tuning.n_subgroups : tuning.matrix.m;
    spec.tile_rows = matrix     ? (spec.tile_heads + step - 1) / step * step
                     : subgroup ? spec.tile_heads
                                : std::bit_ceil(spec.tile_heads);
    if (tuning.own_rows) spec.workgroup_size = spec.tile_rows / step * device.matrix_subgroup_size;
  }
  Tile tile{.keys = spec.workgroup_size * (tuning.path == Path::kBroadcast ? kBroadcastKeys : 1),
            .carried_bytes = carried_bytes_of(spec, tuning.path)};
  vk::PipelineRequest request{
      .label = fmt::format("flash_attention.{}.{}{}{}", single_rows ? "row" : "tile",
                           shape.kv_type.name(), shape.window != 0 ? ".window" : "",
                           matrix ? ".matrix" : ""),
      .constants = vk::constants_of(spec),
      .push_bytes = sizeof(FlashAttentionPush)};
  if (matrix) {
    tile.keys = tuning.key_tile;
    tile.math = Math::kF16;
  }
  if (matrix && tuning.own_rows) {
    const FlashAttentionMatrixRowsSpec more{.subgroup_size = device.matrix_subgroup_size,
                                            .key_tile = tuning.key_tile,
                                            .matrix_m = tuning.matrix.m,
                                            .matrix_n = tuning.matrix.n,
                                            .matrix_k = tuning.matrix.k};
    tile.carried_bytes = carried_bytes_of(spec, more);
    add_constants(more, request);
  } else if (matrix) {
    const uint32_t columns = tuning.key_tile / tuning.matrix.n;
    const uint32_t row_tiles = spec.tile_rows / tuning.matrix.m;
    FlashAttentionMatrixSpec more{.subgroup_size = device.matrix_subgroup_size,
                                  .key_tile = tuning.key_tile,
                                  .matrix_m = tuning.matrix.m,
                                  .matrix_n = tuning.matrix.n,
                                  .matrix_k = tuning.matrix.k};
    while (row_tiles % (more.column_shares * 2) == 0 &&
           tuning.n_subgroups >= columns * more.column_shares * 2) {
      more.column_shares *= 2;
    }
    tile.carried_bytes = carried_bytes_of(spec, more);
    add_constants(more, request);
  }
  if (subgroup) {
    const FlashAttentionSubgroupSpec more = subgroup_attention_spec(spec, tuning);
    tile.carried_bytes = carried_bytes_of(spec, more);
    add_constants(more, request);
  }
  if (tuning.path == Path::kBroadcast && device.require_subgroup_size) {
    request.subgroup_size = device.subgroup_size;
  }
  PUMICE_TRY(request.module, find_spirv(module_name(tuning)));
  tile.rows = spec.tile_rows;
  tile.heads = spec.tile_heads;
  PUMICE_TRY(tile.pipeline, pipelines.declare(request));
  return tile;
}

Result<FlashAttention> FlashAttention::plan(vk::PipelineLibrary& pipelines, const Shape& shape,
                                            const Tuning& tuning) {
  const bool tuned_rows = tuning.path == Path::kMatrix && !tuning.matrix_rows;
  return plan(pipelines, shape, tuning, tuned_rows ? tuned(pipelines) : tuning);
}

Result<FlashAttention> FlashAttention::plan(vk::PipelineLibrary& pipelines, const Shape& given,
                                            const Tuning& tuning, const Tuning& row_tuning) {
  const vk::DevicePlan& device = pipelines.device()->plan();
  if (tuning.path == Path::kSubgroup) {
    return make_error(ErrorCode::kInvalidArgument,
                      "attention: tiles of several tokens have no kernel of subgroups");
  }
  PUMICE_TRY_STATUS(check(device, given, tuning));
  PUMICE_TRY_STATUS(check(device, given, row_tuning));
  Shape shape = given;
  if (shape.latent_dim != 0) shape.kv_type = KvTypes(shape.kv_type.k);
  FlashAttention op;
  op.shape_ = shape;
  PUMICE_TRY(op.tile_, declare(pipelines, shape, tuning, false));
  PUMICE_TRY(op.row_, declare(pipelines, shape, row_tuning, true));
  op.most_carrying_ = take_row(pipelines, "attention_carried").number("workgroups");
  PUMICE_TRY(op.reduce_, declare_reduce(pipelines, shape, tuning));
  if (row_tuning.path == Path::kSubgroup ||
      (row_tuning.path == Path::kMatrix && !row_tuning.matrix_rows)) {
    const uint32_t wanted = take_row(pipelines, "attention_splits").number("busy_workgroups");
    op.row_splits_ =
        std::clamp(wanted / op.grid_of(op.row_, 1)[1], 1u, AttentionPlanOptions::kMostRowSplits);
  }
  return op;
}

bool FlashAttention::takes_matrices(const vk::PipelineLibrary& pipelines, const Shape& shape,
                                    Math math) {
  return wants_matrices(pipelines, math) && tuning_on_matrices(pipelines, shape).ok();
}

Result<FlashAttention> FlashAttention::plan(vk::PipelineLibrary& pipelines, const Shape& shape,
                                            Math math) {
  // With kF32 single rows are computed as tiles are, so that no bit depends on how a text is cut.
  if (math == Math::kF32) return plan(pipelines, shape, tuned(pipelines));
  const Tuning in_fp32 = tuned(pipelines);
  const Tuning rows = row_attention_tuning(pipelines, shape, [&] {
                        return tuning_on_matrices(pipelines, shape);
                      }).value_or(in_fp32);
  if (!wants_matrices(pipelines, math)) return plan(pipelines, shape, in_fp32, rows);
  const Result<Tuning> tuning = tuning_on_matrices(pipelines, shape);
  if (tuning.ok()) return plan(pipelines, shape, *tuning, rows);
  const Logger& logger = pipelines.device()->logger();
  logger.log(math == Math::kF16 ? LogLevel::kInfo : LogLevel::kDebug,
             "attention is computed in fp32: {}", tuning.error().message);
  return plan(pipelines, shape, in_fp32, rows);
}

FlashAttention::GridWords FlashAttention::grid_of(const Tile& tile, uint32_t n_items) const {
  const uint32_t group = shape_.n_heads / shape_.n_kv_heads;
  return {n_items, shape_.n_kv_heads * ((group + tile.heads - 1) / tile.heads), 1};
}

void FlashAttention::record_tiles(vk::Recorder& recorder, const Args& args) const {
  record(recorder, tile_, args);
}

void FlashAttention::record_rows(vk::Recorder& recorder, const Args& args) const {
  record(recorder, row_, args);
}

vk::Cost FlashAttention::cost_of(const Tile& tile, uint64_t keys, uint64_t scores) const {
  uint64_t row_bytes = kv_row_bytes(shape_.kv_type.k, shape_.head_dim);
  if (shape_.latent_dim == 0) row_bytes += kv_row_bytes(shape_.kv_type.v, shape_.value_dim());
  const uint64_t key_bytes = shape_.n_kv_heads * row_bytes;
  return {
      .bytes = keys * key_bytes,
      .flops = scores * shape_.n_heads * (shape_.head_dim + shape_.value_dim()) * 2,
      .arithmetic = tile.math == Math::kF16 ? vk::Arithmetic::kMatrixF16F32 : vk::Arithmetic::kF32};
}

void FlashAttention::record(vk::Recorder& recorder, const Tile& tile, const Args& args) const {
  FlashAttentionPush push;
  push.q = args.q.address();
  push.positions = args.positions.address();
  push.block_table = args.block_table.address();
  push.items = args.items.address();
  push.y = args.y.address();
  push.partial_stats = args.partial_stats.empty() ? 0 : args.partial_stats.address();
  push.partial_y = args.partial_y.empty() ? 0 : args.partial_y.address();
  push.sinks = (shape_.sinks ? args.sinks : args.q).address();
  push.q_stride = args.q_stride;
  push.y_stride = args.y_stride != 0 ? args.y_stride : shape_.n_heads * shape_.value_dim();
  push.table_stride = args.table_stride;
  push.layer_offset = args.layer_offset_bytes;
  push.n_kv_heads = shape_.n_kv_heads;
  push.scale = args.scale;

  push.carried = (args.carried.empty() ? args.q : args.carried).address();
  push.first_head_tile = 0;
  push.first_key_tile = 0;
  push.n_key_tiles = UINT32_MAX;

  const vk::Cost cost = cost_of(tile, args.keys, args.scores);
  // A row belongs to one item list or the other, so tiles and rows write different elements.
  const vk::Access y = vk::writes_share(args.y, this);
  const vk::Access partial_stats = vk::writes_share(args.partial_stats, this);
  const vk::Access partial_y = vk::writes_share(args.partial_y, this);
  const std::initializer_list<vk::Access> accesses = {vk::reads(args.q),
                                                      vk::reads(args.positions),
                                                      vk::reads(args.block_table),
                                                      vk::reads(args.kv),
                                                      vk::reads(args.items),
                                                      vk::reads(args.sinks),
                                                      y,
                                                      partial_stats,
                                                      partial_y};
  const vk::SegmentLimit& limit = recorder.segment_limit();
  if (limit.holds(cost) && !args.grid.empty()) {
    recorder.dispatch_indirect(*tile.pipeline, push, args.grid, accesses, cost);
    return;
  }
  const uint32_t n_head_tiles = grid_of(tile, 1)[1];
  const uint64_t n_workgroups = uint64_t{args.n_items} * n_head_tiles;
  // Items differ (a chunk's later rows see more keys), and the mean stands for all.
  const auto cost_of_some = [&](uint64_t n) {
    const auto of = [&](uint64_t all) {
      return static_cast<uint64_t>(static_cast<double>(all) * static_cast<double>(n) /
                                   static_cast<double>(n_workgroups));
    };
    return vk::Cost{of(cost.bytes), of(cost.flops), cost.arithmetic};
  };
  const auto n_carrying = static_cast<uint32_t>(
      std::min({n_workgroups, most_carrying_, args.carried.size_bytes / tile.carried_bytes}));
  if (n_carrying > 0 && !limit.holds(cost_of_some(n_carrying))) {
    const vk::Cost all_heads =
        cost_of(tile, tile.keys, uint64_t{tile.keys} * (tile.rows / tile.heads));
    record_key_shares(
        recorder, *tile.pipeline, push,
        {.n_items = args.n_items,
         .n_head_tiles = n_head_tiles,
         .n_key_tiles = (args.most_keys + tile.keys - 1) / tile.keys + (shape_.window != 0 ? 1 : 0),
         .n_carrying = n_carrying,
         .cost = {all_heads.bytes / n_head_tiles, all_heads.flops / n_head_tiles, cost.arithmetic}},
        {vk::reads(args.q), vk::reads(args.positions), vk::reads(args.block_table),
         vk::reads(args.kv), vk::reads(args.items), vk::reads(args.sinks), y, partial_stats,
         partial_y, vk::updates(args.carried)});
    return;
  }
  dispatch_parts(
      recorder, *tile.pipeline, push, args.n_items, n_head_tiles, accesses,
      [&](uint64_t n_items, uint64_t n_tiles) { return cost_of_some(n_items * n_tiles); },
      [&](FlashAttentionPush& moved, Share items, Share tiles) {
        moved.items += items.first * sizeof(AttentionItem);
        moved.first_head_tile = tiles.first;
        return vk::Grid{items.n, tiles.n};
      });
}

void FlashAttention::record_reduce(vk::Recorder& recorder, const ReduceArgs& args) const {
  AttentionReducePush push;
  push.items = args.items.address();
  push.partial_stats = args.partial_stats.address();
  push.partial_y = args.partial_y.address();
  push.y = args.y.address();
  push.sinks = (shape_.sinks ? args.sinks : args.y).address();
  push.n_heads = shape_.n_heads;
  const uint64_t row_elements = uint64_t{shape_.n_heads} * shape_.value_dim();
  const vk::Cost cost{.bytes = (args.n_partials + args.n_items) * row_elements * 4,
                      .flops = args.n_partials * row_elements * 2};
  const std::initializer_list<vk::Access> accesses = {
      vk::reads(args.items), vk::reads(args.partial_stats), vk::reads(args.partial_y),
      vk::reads(args.sinks), vk::writes(args.y)};
  if (args.grid.empty()) {
    const GridWords grid = reduce_grid_of(args.n_items);
    recorder.dispatch(*reduce_, push, {grid[0], grid[1], grid[2]}, accesses, cost);
  } else {
    recorder.dispatch_indirect(*reduce_, push, args.grid, accesses, cost);
  }
}

}  // namespace pumice::ops
