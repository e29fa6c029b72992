#include "models/calls/attention.hpp"

#include "models/calls/bound_call.hpp"
#include "shaders/rope/rope.hpp"
#include "shaders/rope_kv/rope_kv.hpp"

namespace pumice {
namespace {

ops::RopePairs pairs_of(bool halves) {
  return halves ? ops::RopePairs::kHalves : ops::RopePairs::kAdjacent;
}

void record_attention(const StepContext& step, const call::Attention& c) {
  const StateLayout::Place place = step.place(c.state);
  const AttentionLists& lists = step.step.attention[c.attention_class];
  const ops::FlashAttention& attention = step.shared.attention.at(c.attention_class);
  ops::FlashAttention::Args args{
      .q = step.at(c.q),
      .positions = lists.horizons.empty() ? step.step.positions : lists.horizons,
      .block_table = step.memory.block_tables[place.kind],
      .kv = step.memory.kv,
      .y = step.at(c.y),
      .partial_stats = step.shared.partial_stats,
      .partial_y = step.shared.partial_y,
      .sinks = step.vector(c.sinks),
      .carried = step.shared.carried,
      .q_stride = step.stride(c.q),
      .table_stride = step.memory.table_stride,
      .layer_offset_bytes = place.offset_bytes,
      .scale = static_cast<float>(c.scale)};
  const ops::AttentionPlan& plan = lists.plan;
  if (!plan.tile_items.empty()) {
    args.items = lists.tile_items;
    args.grid = lists.tile_grid;
    args.n_items = static_cast<uint32_t>(plan.tile_items.size());
    args.keys = plan.tile_keys;
    args.scores = plan.tile_scores;
    args.most_keys = plan.most_tile_keys;
    attention.record_tiles(step.recorder, args);
  }
  if (!plan.row_items.empty()) {
    args.items = lists.row_items;
    args.grid = lists.row_grid;
    args.n_items = static_cast<uint32_t>(plan.row_items.size());
    args.keys = plan.row_keys;
    args.scores = plan.row_scores;
    args.most_keys = plan.most_row_keys;
    attention.record_rows(step.recorder, args);
  }
  if (!plan.reduce_items.empty()) {
    attention.record_reduce(step.recorder,
                            {.items = lists.reduce_items,
                             .grid = lists.reduce_grid,
                             .partial_stats = step.shared.partial_stats,
                             .partial_y = step.shared.partial_y,
                             .y = step.at(c.y),
                             .sinks = step.vector(c.sinks),
                             .n_items = static_cast<uint32_t>(plan.reduce_items.size()),
                             .n_partials = plan.n_partials});
  }
}

class BoundExpandedAttention final : public BoundCall {
 public:
  explicit BoundExpandedAttention(const call::ExpandedAttention& c) : c_(c) {}

  void use_weights(const Lowered& lowered, const ModelWeights& weights) override {
    keys_ = weights.matrix(lowered.matrices[c_.keys][0]);
    values_ = weights.matrix(lowered.matrices[c_.values][0]);
  }

  uint64_t scratch_bytes(const SharedByCalls& shared, uint32_t /*n_rows*/) const override {
    const auto expansion = shared.expansions.find(c_.attention_class);
    if (expansion == shared.expansions.end()) return 0;
    return expansion->second.linear_scratch_bytes(shared.linear, keys_, values_, c_.fused);
  }

  void record(const StepContext& step) const override {
    const AttentionLists& lists = step.step.attention[c_.attention_class];
    if (lists.chunks.empty()) return;
    const StateLayout::Place place = step.place(c_.state);
    step.shared.expansions.at(c_.attention_class)
        .record(step.recorder, lists,
                {.linear = step.shared.linear,
                 .linear_scratch = step.shared.linear_scratch,
                 .keys = keys_,
                 .values = values_,
                 .fused = c_.fused,
                 .q = step.at(c_.q),
                 .q_stride = step.stride(c_.q),
                 .y = step.at(c_.y),
                 .y_stride = step.stride(c_.y),
                 .positions = step.step.positions,
                 .block_table = step.memory.block_tables[place.kind],
                 .table_stride = step.memory.table_stride,
                 .kv = step.memory.kv,
                 .layer_offset_bytes = place.offset_bytes,
                 .sinks = step.vector(c_.sinks),
                 .carried = step.shared.carried,
                 .scale = static_cast<float>(c_.scale)});
  }

 private:
  const call::ExpandedAttention c_;
  WeightMatrix keys_;
  WeightMatrix values_;
};

}  // namespace

BindResult bind(const call::Rope& c, Binder& binder) {
  PUMICE_TRY(const ops::Rope op,
             ops::Rope::plan(binder.pipelines, {.head_dim = c.head_dim,
                                                .rope_dims = binder.program.ropes[c.rope].dims,
                                                .pairs = pairs_of(c.halves)}));
  return make_recorded([=](const StepContext& step) {
    op.record(step.recorder, {.x = step.at(c.x),
                              .rope_table = step.shared.rope_tables[c.rope],
                              .positions = step.step.positions,
                              .rows = step.n_rows,
                              .n_heads = c.n_heads,
                              .x_stride = step.stride(c.x)});
  });
}

BindResult bind(const call::RopeKv& c, Binder& binder) {
  PUMICE_TRY(const ops::RopeKv op,
             ops::RopeKv::plan(binder.pipelines,
                               {.n_heads = c.n_heads,
                                .n_kv_heads = c.n_kv_heads,
                                .head_dim = c.head_dim,
                                .rope_dims = c.rope ? binder.program.ropes[*c.rope].dims : 0,
                                .pairs = pairs_of(c.halves),
                                .kv_type = binder.kv_type,
                                .head_norms = c.q_norm.has_value(),
                                .biases = c.bias.has_value(),
                                .has_values = c.has_values,
                                .v_dim = c.v_dim}));
  return make_recorded([=](const StepContext& step) {
    const StateLayout::Place place = step.place(c.state);
    op.record(step.recorder,
              {.qkv = step.at(c.qkv),
               .rope_table = c.rope ? step.shared.rope_tables[*c.rope] : vk::BufferRange{},
               .positions = step.step.positions,
               .row_seq = step.step.row_seq,
               .block_table = step.memory.block_tables[place.kind],
               .kv = step.memory.kv,
               .rows = step.n_rows,
               .row_stride = step.stride(c.qkv),
               .table_stride = step.memory.table_stride,
               .layer_offset_bytes = place.offset_bytes,
               .q_norm = step.vector(c.q_norm),
               .k_norm = step.vector(c.k_norm),
               .norm_eps = c.norm_eps,
               .bias = step.vector(c.bias)});
  });
}

BindResult bind(const call::Attention& c, Binder&) {
  return make_recorded([=](const StepContext& step) { record_attention(step, c); });
}

BindResult bind(const call::ExpandedAttention& c, Binder& binder) {
  const Lowered& lowered = binder.shared.lowered;
  if (!binder.shared.invariant) {
    binder.multiplies(*binder.weights.matrix(lowered.matrices[c.values][0]).type);
    if (!c.fused) {
      binder.multiplies(weight_type("F32"));
      binder.expands(c.attention_class, *binder.weights.matrix(lowered.matrices[c.keys][0]).type);
    }
  }
  return make_bound<BoundExpandedAttention>(c);
}

}  // namespace pumice
