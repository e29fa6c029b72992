#include "models/latent_expansion.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "format/resident_layout.hpp"
#include "shaders/common/tuning.hpp"

namespace pumice {
namespace {

constexpr uint64_t kFloat = sizeof(float);
/// K and V of the heads that are made at a time, at most. Of DeepSeek V2 Lite that is all 16 heads
/// of 6,000 keys as floats, or one head of 100,000.
constexpr uint64_t kMostExpandedBytes = uint64_t{128} << 20;
constexpr uint32_t kPieceKeys = 1024;

uint32_t whole_blocks(uint64_t n_keys) {
  return static_cast<uint32_t>(n_keys / kKvBlockTokens * kKvBlockTokens);
}

/// Attention to the heads' own keys, some heads at a time.
ops::FlashAttention::Shape attention_shape(const ExpansionSizes& sizes, const AttentionClass& one,
                                           KvType type) {
  return {.n_heads = sizes.n_heads,
          .n_kv_heads = sizes.n_heads,
          .head_dim = sizes.shape.head_dim(),
          .kv_type = type,
          .soft_cap = static_cast<float>(one.soft_cap),
          .sinks = one.sinks,
          .v_dim = sizes.shape.value_dim};
}

}  // namespace

bool ExpansionSizes::Shape::suits(const ops::SequenceChunk& chunk, uint32_t latent_cost) const {
  const uint64_t rows = chunk.n_rows;
  const uint64_t keys = chunk.first_position + rows;
  const uint64_t pairs = rows * chunk.first_position + rows * (rows + 1) / 2;
  const uint64_t products = uint64_t{rank} * (n_still + value_dim);
  return keys * products + pairs * (head_dim() + value_dim) <
         rows * products + latent_cost * pairs * (row_floats() + rank);
}

KvLayout ExpansionSizes::layout(KvType type) const {
  return ops::LatentHeads::Shape{.n_heads = n_heads,
                                 .n_still = shape.n_still,
                                 .n_turned = shape.n_turned,
                                 .v_dim = shape.value_dim,
                                 .type = type}
      .layout();
}

void ExpansionBuffers::lay_out(const ExpansionSizes& sizes, vk::ArenaLayout& arena) {
  const ExpansionSizes::Shape& shape = sizes.shape;
  const uint64_t n_blocks = sizes.n_keys / kKvBlockTokens;
  arena.add(kFloat * sizes.piece_keys * shape.row_floats(), latents);
  arena.add(kFloat * sizes.piece_keys * sizes.n_heads * (shape.n_still + shape.value_dim), own);
  arena.add(ops::HeadTranspose::bytes(sizes.n_heads, shape.rank, shape.n_still), matrices);
  arena.add(n_blocks * sizes.layout(KvType::kF32).block_bytes(), expanded);
  arena.add(n_blocks * sizeof(uint64_t), block_table);
}

std::optional<ExpansionSizes> expansion_sizes(const Lowered& lowered, uint32_t attention_class,
                                              uint32_t context_tokens, bool invariant,
                                              uint64_t slab_bytes) {
  const AttentionClass& one = lowered.attention_classes[attention_class];
  if (invariant || !one.expands) return std::nullopt;
  const AttentionClass& latents = lowered.attention_classes[*one.expands];
  ExpansionSizes sizes{.shape = {.n_heads = one.n_heads,
                                 .rank = latents.latent_dim,
                                 .n_turned = latents.head_dim - latents.latent_dim,
                                 .value_dim = one.value_dim()}};
  const ExpansionSizes::Shape& shape = sizes.shape;
  sizes.shape.n_still = one.head_dim - shape.n_turned;
  const uint32_t context = whole_blocks(uint64_t{context_tokens} + kKvBlockTokens - 1);
  const uint64_t most_bytes = std::min(kMostExpandedBytes, slab_bytes);
  // As many heads as hold the whole context, or the fewest. Rows of their matrices begin with a
  // group of rows.
  for (uint32_t n = shape.n_heads; n > 0; --n) {
    const bool in_groups = n == shape.n_heads || (n * shape.n_still % kRowGroup == 0 &&
                                                  n * shape.value_dim % kRowGroup == 0);
    if (shape.n_heads % n != 0 || !in_groups ||
        ops::HeadTranspose::bytes(n, shape.rank, shape.n_still) > most_bytes) {
      continue;
    }
    sizes.n_heads = n;
    const uint64_t n_blocks = most_bytes / sizes.layout(KvType::kF32).block_bytes();
    sizes.n_keys = static_cast<uint32_t>(std::min<uint64_t>(context, n_blocks * kKvBlockTokens));
    if (sizes.n_keys == context) break;
  }
  if (sizes.n_heads == 0) return std::nullopt;
  const auto attention = attention_shape(sizes, one, KvType::kF32);
  if (!ops::FlashAttention::check_shape(attention).ok()) return std::nullopt;
  const uint64_t key_bytes =
      kFloat * std::max<uint64_t>(shape.row_floats(),
                                  uint64_t{sizes.n_heads} * (shape.n_still + shape.value_dim));
  sizes.piece_keys =
      whole_blocks(std::min<uint64_t>({kPieceKeys, sizes.n_keys, most_bytes / key_bytes}));
  ExpansionBuffers buffers;
  vk::ArenaLayout arena(vk::MemoryDomain::kDevice, "");
  buffers.lay_out(sizes, arena);
  const bool fits = arena.sizes(slab_bytes).largest_bytes() <= slab_bytes;
  return fits && sizes.piece_keys > 0 ? std::optional(sizes) : std::nullopt;
}

Result<LatentExpansion> LatentExpansion::plan(vk::PipelineLibrary& pipelines,
                                              const ExpansionSizes& sizes,
                                              const AttentionClass& one, KvType latent_type,
                                              const std::vector<const WeightType*>& apart,
                                              ops::Math math) {
  const ExpansionSizes::Shape& shape = sizes.shape;
  LatentExpansion op;
  op.sizes_ = sizes;
  const vk::TuningRow& row = ops::take_row(pipelines, "latent_expansion");
  op.least_rows_ = row.number("least_rows");
  op.latent_cost_ = row.number("latent_cost");
  const bool halves = ops::FlashAttention::takes_matrices(
      pipelines, attention_shape(sizes, one, KvType::kF16), math);
  op.type_ = halves ? KvType::kF16 : KvType::kF32;
  PUMICE_TRY(op.attention_,
             ops::FlashAttention::plan(pipelines, attention_shape(sizes, one, op.type_), math));
  PUMICE_TRY(op.rows_, ops::LatentRows::plan(pipelines, shape.row_floats(), latent_type));
  PUMICE_TRY(op.heads_, ops::LatentHeads::plan(pipelines, {.n_heads = sizes.n_heads,
                                                           .n_still = shape.n_still,
                                                           .n_turned = shape.n_turned,
                                                           .v_dim = shape.value_dim,
                                                           .type = op.type_}));
  for (const WeightType* const type : apart) {
    PUMICE_TRY(op.transpose_[type], ops::HeadTranspose::plan(pipelines, *type));
  }
  return op;
}

Status LatentExpansion::use(const ExpansionBuffers& buffers, vk::Uploader& uploader) {
  buffers_ = buffers;
  std::vector<uint64_t> table(sizes_.n_keys / kKvBlockTokens);
  for (size_t i = 0; i < table.size(); ++i) {
    table[i] = buffers_.expanded.address() + i * sizes_.layout(type_).block_bytes();
  }
  return uploader.write(buffers_.block_table, std::span<const uint64_t>(table));
}

bool LatentExpansion::takes(const ops::SequenceChunk& chunk) const {
  return chunk.n_rows >= least_rows_ && chunk.first_position + chunk.n_rows <= sizes_.n_keys &&
         sizes_.shape.suits(chunk, latent_cost_);
}

uint64_t LatentExpansion::linear_scratch_bytes(const ops::Linear& linear, const WeightMatrix& keys,
                                               const WeightMatrix& values, bool fused) const {
  std::vector<WeightMatrix> matrices = {values};
  if (!fused) {
    matrices.push_back(ops::HeadTranspose::result(
        {.weights = keys, .n_heads = sizes_.shape.n_heads, .n_wanted = sizes_.n_heads}));
  }
  return linear.scratch_bytes(sizes_.piece_keys, matrices);
}

/// Keys and values of some heads of a sequence.
void LatentExpansion::expand(vk::Recorder& recorder, const Args& args, uint32_t first_head,
                             uint32_t seq, uint32_t n_keys) const {
  const ExpansionSizes::Shape& shape = sizes_.shape;
  const uint32_t n_heads = sizes_.n_heads;
  const uint32_t head_floats = shape.n_still + shape.value_dim;
  const uint32_t stride = n_heads * head_floats;
  // Side by side: the heads' keys and values by turns, or all keys and then all values.
  const uint32_t first_value = args.fused ? shape.n_still : n_heads * shape.n_still;
  std::vector<WeightMatrix> matrices;
  if (args.fused) {
    matrices = {args.values.rows(first_head * head_floats, stride)};
  } else {
    const ops::HeadTranspose::Args transposed{.weights = args.keys,
                                              .n_heads = shape.n_heads,
                                              .first_head = first_head,
                                              .n_wanted = n_heads,
                                              .y = buffers_.matrices};
    transpose_.at(args.keys.type).record(recorder, transposed);
    matrices = {ops::HeadTranspose::result(transposed),
                args.values.rows(first_head * shape.value_dim, n_heads * shape.value_dim)};
  }
  const KvLayout layout = sizes_.layout(type_);
  for (uint32_t first = 0; first < n_keys; first += sizes_.piece_keys) {
    const uint32_t n = std::min(sizes_.piece_keys, n_keys - first);
    rows_.record(recorder, {.block_table = args.block_table.from(sizeof(uint64_t) * seq *
                                                                 uint64_t{args.table_stride}),
                            .kv = args.kv,
                            .y = buffers_.latents,
                            .first_key = first,
                            .n_keys = n,
                            .layer_offset_bytes = args.layer_offset_bytes});
    std::vector<ops::Linear::Args> products;
    for (const WeightMatrix& matrix : matrices) {
      products.push_back({.weights = matrix,
                          .x = buffers_.latents,
                          .x_stride = shape.row_floats(),
                          .y = buffers_.own.from(products.empty() ? 0 : kFloat * first_value),
                          .y_stride = stride,
                          .rows = n,
                          .scratch = args.linear_scratch});
    }
    args.linear.record(recorder, products);
    heads_.record(recorder,
                  {.turned = buffers_.latents.from(kFloat * shape.rank),
                   .turned_stride = shape.row_floats(),
                   .keys = {buffers_.own, args.fused ? head_floats : shape.n_still},
                   .values = {buffers_.own.from(kFloat * first_value),
                              args.fused ? head_floats : shape.value_dim},
                   .stride = stride,
                   .kv = buffers_.expanded.from(first / kKvBlockTokens * layout.block_bytes()),
                   .n_keys = n});
  }
}

void LatentExpansion::record(vk::Recorder& recorder, const AttentionLists& lists,
                             const Args& args) const {
  const ExpansionSizes::Shape& shape = sizes_.shape;
  uint32_t first_item = 0;
  for (const ops::SequenceChunk& chunk : lists.chunks) {
    const uint32_t n_keys = chunk.first_position + chunk.n_rows;
    const uint32_t n_items =
        (chunk.n_rows + attention_.tile_tokens() - 1) / attention_.tile_tokens();
    uint64_t read_keys = 0;
    for (uint32_t i = 0; i < n_items; ++i)
      read_keys += lists.plan.tile_items[first_item + i].kv_end;
    const uint64_t rows = chunk.n_rows;
    for (uint32_t head = 0; head < shape.n_heads; head += sizes_.n_heads) {
      expand(recorder, args, head, chunk.seq, n_keys);
      attention_.record_tiles(
          recorder,
          {.q = args.q.from(kFloat * head * shape.head_dim()),
           .positions = args.positions,
           .block_table = buffers_.block_table,
           .kv = buffers_.expanded,
           .items = lists.tile_items.from(uint64_t{first_item} * sizeof(ops::AttentionItem)),
           .y = args.y.from(kFloat * head * shape.value_dim),
           .sinks = args.sinks.empty() ? args.sinks : args.sinks.from(kFloat * head),
           .carried = args.carried,
           .n_items = n_items,
           .q_stride = args.q_stride,
           .y_stride = args.y_stride,
           .scale = args.scale,
           .keys = read_keys,
           .scores = rows * chunk.first_position + rows * (rows + 1) / 2,
           .most_keys = n_keys});
    }
    first_item += n_items;
  }
}

}  // namespace pumice
