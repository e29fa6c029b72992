#include <algorithm>
#include <optional>
#include <variant>
#include <vector>

#include "base/check.hpp"
#include "models/decoder.hpp"

namespace pumice {
namespace {

constexpr uint64_t kFloatBytes = sizeof(float);

/// Up to which position each row sees. With a window it may lie behind the text's end, so that as
/// many keys are visible before each row.
void write_horizons(std::span<const ops::SequenceChunk> chunks, uint32_t ahead,
                    const vk::BufferRange& horizons) {
  const std::span<uint32_t> target = horizons.mapped<uint32_t>();
  for (const ops::SequenceChunk& chunk : chunks) {
    const uint32_t last = chunk.first_position + chunk.n_rows - 1;
    for (uint32_t i = 0; i < chunk.n_rows; ++i) {
      target[chunk.first_row + i] =
          ahead == op::kAllAhead ? last : chunk.first_position + i + ahead;
    }
  }
}

}  // namespace

/// Records the dispatches of one step, one after the other.
class Decoder::Recording {
 public:
  Recording(const Decoder& decoder, vk::Recorder& recorder, const StepArgs& step,
            const SequenceMemory& memory)
      : decoder_(decoder),
        lowered_(decoder.lowered_),
        recorder_(recorder),
        step_(step),
        memory_(memory) {}

  void run() {
    for (size_t i = 0; i < lowered_.dispatches.size(); ++i) {
      const Dispatch& dispatch = lowered_.dispatches[i];
      n_rows_ = dispatch.rows == RowSet::kAll ? step_.n_rows : step_.n_logit_rows;
      if (n_rows_ == 0) continue;
      resolved_ = &decoder_.resolved_[i];
      recorder_.enter({dispatch.part, dispatch.layer.value_or(vk::Scope::kNoLayer)});
      std::visit([&](const auto& c) { record(c); }, dispatch.what);
    }
  }

 private:
  /// From a view's first column on.
  vk::BufferRange at(const View& view) const {
    return decoder_.buffers_[view.buffer].from(kFloatBytes * view.first);
  }
  vk::BufferRange at(const std::optional<View>& view) const {
    return view ? at(*view) : vk::BufferRange{};
  }
  vk::BufferRange vector(std::optional<VectorId> id) const {
    return id ? decoder_.vectors_[*id] : vk::BufferRange{};
  }
  uint32_t stride(const View& view) const { return lowered_.buffers[view.buffer].width; }
  vk::BufferRange row_index(bool gathers) const {
    return gathers ? step_.logit_rows : vk::BufferRange{};
  }

  void record(const call::Embed& c) {
    decoder_.embedding_.at(resolved_->matrix.type)
        .record(recorder_, {.tokens = c.by_position ? step_.positions : step_.tokens,
                            .sampled = c.by_position ? vk::BufferRange{} : memory_.sampled,
                            .table = &resolved_->matrix,
                            .y = at(c.y),
                            .rows = n_rows_,
                            .scale = c.scale});
  }

  void record(const call::Linear& c) {
    std::vector<ops::Linear::Args> args;
    for (const StackedMatrices::Member& member : resolved_->matrices.members) {
      args.push_back({.weights = member.matrix,
                      .x = at(c.x),
                      .x_stride = stride(c.x),
                      .y = at({c.y.buffer, c.y.first + member.first_column}),
                      .y_stride = stride(c.y),
                      .rows = n_rows_,
                      .scratch = decoder_.linear_scratch_});
    }
    decoder_.linear_.record(recorder_, args);
  }

  void record(const call::RmsNorm& c) {
    decoder_.rms_norm_.record(recorder_, {.x = at(c.x),
                                          .residual = at(c.residual),
                                          .weight = vector(c.weight),
                                          .y = at(c.y),
                                          .row_index = row_index(c.gathers),
                                          .rows = n_rows_,
                                          .n = c.n,
                                          .eps = c.eps,
                                          .n_groups = c.n_groups,
                                          .x_stride = stride(c.x),
                                          .y_stride = stride(c.y),
                                          .weight_each = c.weight_each});
  }

  void record(const call::LayerNorm& c) {
    decoder_.layer_norm_.record(recorder_, {.x = at(c.x),
                                            .residual = at(c.residual),
                                            .weight = decoder_.vectors_[c.weight],
                                            .bias = vector(c.bias),
                                            .y = at(c.y),
                                            .row_index = row_index(c.gathers),
                                            .rows = n_rows_,
                                            .n = c.n,
                                            .eps = c.eps,
                                            .n_groups = c.n_groups,
                                            .x_stride = stride(c.x),
                                            .y_stride = stride(c.y)});
  }

  void record(const call::Rope& c) {
    decoder_.rope_[resolved_->rope].record(recorder_, {.x = at(c.x),
                                                       .rope_table = decoder_.rope_tables_[c.rope],
                                                       .positions = step_.positions,
                                                       .rows = n_rows_,
                                                       .n_heads = c.n_heads,
                                                       .x_stride = stride(c.x)});
  }

  void record(const call::RopeKv& c) {
    const StateLayout::Place place = decoder_.state_.place(c.state);
    decoder_.rope_kv_[resolved_->rope_kv].record(
        recorder_, {.qkv = at(c.qkv),
                    .rope_table = c.rope ? decoder_.rope_tables_[*c.rope] : vk::BufferRange{},
                    .positions = step_.positions,
                    .row_seq = step_.row_seq,
                    .block_table = memory_.block_tables[place.page],
                    .kv = memory_.kv,
                    .rows = n_rows_,
                    .row_stride = stride(c.qkv),
                    .table_stride = memory_.table_stride,
                    .layer_offset_bytes = place.offset_bytes,
                    .q_norm = vector(c.q_norm),
                    .k_norm = vector(c.k_norm),
                    .norm_eps = c.norm_eps,
                    .bias = vector(c.bias)});
  }

  void record(const call::HeadLinear& c) {
    if (!c.attention_class) return record_rows(c, 0, n_rows_);
    // Rows of neighbouring chunks in one go.
    const std::vector<ops::SequenceChunk>& chunks = step_.attention[*c.attention_class].chunks;
    for (size_t i = 0; i < chunks.size();) {
      const uint32_t first = chunks[i].first_row;
      uint32_t end = first;
      for (; i < chunks.size() && chunks[i].first_row == end; ++i) end += chunks[i].n_rows;
      record_rows(c, first, end - first);
    }
  }

  void record_rows(const call::HeadLinear& c, uint32_t first_row, uint32_t n_rows) {
    const WeightMatrix& weights = resolved_->matrix;
    const ops::HeadLinear& op = decoder_.head_linear_.at({weights.type, c.transposed});
    const auto from_row = [&](const View& view) {
      return at(view).from(kFloatBytes * first_row * stride(view));
    };
    const ops::HeadLinear::Args args{.weights = weights,
                                     .n_heads = c.n_heads,
                                     .first_row = c.first_row,
                                     .n_rows = c.n_rows,
                                     .x = from_row(c.x),
                                     .x_stride = stride(c.x),
                                     .x_head_stride = c.x_head_dim,
                                     .y = from_row(c.y),
                                     .y_stride = stride(c.y),
                                     .rows = n_rows};
    // Of many rows the usual products are faster, for all that there is one a head.
    const bool apart = n_rows > ops::Gemv::kMaxRows && !decoder_.invariant_;
    if (!apart || resolved_->heads.empty()) return op.record(recorder_, args);
    const uint32_t y_head_dim = c.n_rows + c.x_head_dim - weights.n_cols;
    for (uint32_t head = 0; head < c.n_heads; ++head) {
      decoder_.linear_.record(recorder_,
                              {.weights = resolved_->heads[head],
                               .x = from_row({c.x.buffer, c.x.first + head * c.x_head_dim}),
                               .x_stride = stride(c.x),
                               .y = from_row({c.y.buffer, c.y.first + head * y_head_dim}),
                               .y_stride = stride(c.y),
                               .rows = n_rows,
                               .scratch = decoder_.linear_scratch_});
    }
    op.record_kept(recorder_, args);
  }

  void record(const call::Attention& c) {
    const StateLayout::Place place = decoder_.state_.place(c.state);
    const AttentionLists& lists = step_.attention[c.attention_class];
    const ops::FlashAttention& attention = decoder_.attention_.at(c.attention_class);
    ops::FlashAttention::Args args{
        .q = at(c.q),
        .positions = lists.horizons.empty() ? step_.positions : lists.horizons,
        .block_table = memory_.block_tables[place.page],
        .kv = memory_.kv,
        .y = at(c.y),
        .partial_stats = decoder_.partial_stats_,
        .partial_y = decoder_.partial_y_,
        .sinks = vector(c.sinks),
        .carried = decoder_.carried_,
        .q_stride = stride(c.q),
        .table_stride = memory_.table_stride,
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
      attention.record_tiles(recorder_, args);
    }
    if (!plan.row_items.empty()) {
      args.items = lists.row_items;
      args.grid = lists.row_grid;
      args.n_items = static_cast<uint32_t>(plan.row_items.size());
      args.keys = plan.row_keys;
      args.scores = plan.row_scores;
      args.most_keys = plan.most_row_keys;
      attention.record_rows(recorder_, args);
    }
    if (!plan.reduce_items.empty()) {
      attention.record_reduce(recorder_,
                              {.items = lists.reduce_items,
                               .grid = lists.reduce_grid,
                               .partial_stats = decoder_.partial_stats_,
                               .partial_y = decoder_.partial_y_,
                               .y = at(c.y),
                               .sinks = vector(c.sinks),
                               .n_items = static_cast<uint32_t>(plan.reduce_items.size()),
                               .n_partials = plan.n_partials});
    }
  }

  void record(const call::ExpandedAttention& c) {
    const AttentionLists& lists = step_.attention[c.attention_class];
    if (lists.chunks.empty()) return;
    const StateLayout::Place place = decoder_.state_.place(c.state);
    decoder_.expansions_.at(c.attention_class)
        .record(recorder_, lists,
                {.linear = decoder_.linear_,
                 .linear_scratch = decoder_.linear_scratch_,
                 .keys = resolved_->matrix,
                 .values = resolved_->values,
                 .fused = c.fused,
                 .q = at(c.q),
                 .q_stride = stride(c.q),
                 .y = at(c.y),
                 .y_stride = stride(c.y),
                 .positions = step_.positions,
                 .block_table = memory_.block_tables[place.page],
                 .table_stride = memory_.table_stride,
                 .kv = memory_.kv,
                 .layer_offset_bytes = place.offset_bytes,
                 .sinks = vector(c.sinks),
                 .carried = decoder_.carried_,
                 .scale = static_cast<float>(c.scale)});
  }

  void record(const call::CausalConv& c) {
    const StateLayout::Place place = decoder_.state_.place(c.state);
    decoder_.causal_conv_[resolved_->causal_conv].record(recorder_,
                                                         {.x = at(c.x),
                                                          .x_stride = stride(c.x),
                                                          .y = at(c.y),
                                                          .y_stride = stride(c.y),
                                                          .weight = decoder_.vectors_[c.weight],
                                                          .bias = vector(c.bias),
                                                          .items = step_.states[place.page],
                                                          .n_items = step_.n_chunks,
                                                          .row_item = step_.row_chunk,
                                                          .states = memory_.kv,
                                                          .state_offset_bytes = place.offset_bytes,
                                                          .rows = n_rows_,
                                                          .n = c.n});
  }

  void record(const call::Recurrence& c) {
    const StateLayout::Place place = decoder_.state_.place(c.state);
    const auto rows = [&](const View& view) {
      return ops::Recurrence::Rows{.range = at(view), .stride = stride(view)};
    };
    decoder_.recurrence_[resolved_->recurrence].record(
        recorder_, {.q = rows(c.q),
                    .k = rows(c.k),
                    .v = rows(c.v),
                    .step = rows(c.step),
                    .beta = c.beta ? rows(*c.beta) : ops::Recurrence::Rows{},
                    .y = rows(c.y),
                    .q_scale = c.q_scale,
                    .k_scale = c.k_scale,
                    .a = decoder_.vectors_[c.a],
                    .bias = decoder_.vectors_[c.bias],
                    .d = vector(c.d),
                    .items = step_.states[place.page],
                    .n_items = step_.n_chunks,
                    .states = memory_.kv,
                    .state_offset_bytes = place.offset_bytes,
                    .rows = n_rows_,
                    .item_rows = step_.chunk_rows});
  }

  void record(const call::Gated& c) {
    decoder_.gated_.at(c.kind).record(
        recorder_, {.gate_up = at(c.gate_up), .y = at(c.y), .rows = n_rows_, .n = c.n});
  }

  void record(const call::Elementwise& c) {
    ops::Elementwise::Args args{.a = at(c.a),
                                .a_stride = stride(c.a),
                                .y = at(c.y),
                                .y_stride = stride(c.y),
                                .rows = n_rows_,
                                .n = c.n,
                                .factor = static_cast<float>(c.factor),
                                .xielu = c.xielu,
                                .row_index = row_index(c.gathers)};
    args.a_group = c.a_group;
    args.y_group = c.y_group;
    if (c.b) {
      args.b = at(*c.b);
      args.b_stride = stride(*c.b);
      args.b_group = c.b_group;
    } else if (c.bias) {
      args.b = decoder_.vectors_[c.bias->vector].from(kFloatBytes * c.bias->first);
    }
    decoder_.elementwise_.at(c.kind).record(recorder_, args);
  }

  void record(const call::Route& c) {
    decoder_.route_.at(Decoder::route_kind(c, decoder_.routing_))
        .record(recorder_, {.scores = at(c.scores),
                            .bias = vector(c.bias),
                            .gains = vector(c.gains),
                            .routes = at(c.routes),
                            .rows = n_rows_,
                            .n_experts = c.n_experts,
                            .n_used = c.n_used,
                            .n_groups = c.router.n_groups,
                            .n_used_groups = c.router.n_used_groups,
                            .scale = static_cast<float>(c.router.scale)});
  }

  /// Whether experts' products of this step are those of groups of rows.
  bool groups_routes(uint32_t n_used, uint32_t n_experts) const {
    return decoder_.expert_gemm_ && ops::ExpertGemm::suits(n_rows_, n_used, n_experts);
  }
  ops::ExpertGemm::Groups groups(const View& view, uint32_t n_used, uint32_t n_experts) const {
    return {.range = at(view), .rows = n_rows_, .n_used = n_used, .n_experts = n_experts};
  }

  void record(const call::GroupRoutes& c) {
    if (!groups_routes(c.n_used, c.n_experts)) return;
    decoder_.expert_gemm_->record_groups(recorder_, at(c.routes),
                                         groups(c.groups, c.n_used, c.n_experts));
  }

  void record(const call::ExpertLinear& c) {
    const WeightMatrix& weights = resolved_->matrix;
    if (groups_routes(c.n_used, c.n_experts)) {
      decoder_.expert_gemm_->record(recorder_, {.weights = weights,
                                                .x = at(c.x),
                                                .x_stride = stride(c.x),
                                                .x_rank_stride = c.row_each ? weights.n_cols : 0,
                                                .groups = groups(c.groups, c.n_used, c.n_experts),
                                                .bias = vector(c.bias),
                                                .y = at(c.y),
                                                .y_stride = weights.n_rows / c.n_experts});
      return;
    }
    decoder_.expert_linear_.at({weights.type, c.bias.has_value()})
        .record(recorder_, {.weights = weights,
                            .n_experts = c.n_experts,
                            .x = at(c.x),
                            .x_stride = stride(c.x),
                            .x_rank_stride = c.row_each ? weights.n_cols : 0,
                            .routes = at(c.routes),
                            .bias = vector(c.bias),
                            .y = at(c.y),
                            .y_stride = weights.n_rows / c.n_experts,
                            .rows = n_rows_,
                            .n_used = c.n_used});
  }

  void record(const call::Combine& c) {
    decoder_.combine_.record(recorder_, {.x = at(c.x),
                                         .routes = at(c.routes),
                                         .y = at(c.y),
                                         .rows = n_rows_,
                                         .n_used = c.n_used,
                                         .n = c.n});
  }

  const Decoder& decoder_;
  const Lowered& lowered_;
  vk::Recorder& recorder_;
  const StepArgs& step_;
  const SequenceMemory& memory_;
  const Resolved* resolved_ = nullptr;  // of the dispatch at hand
  uint32_t n_rows_ = 0;
};

void Decoder::write_attention(std::span<const ops::SequenceChunk> chunks,
                              const ops::AttentionPlanOptions& options, StepArgs& step) const {
  const auto write = [](const auto& values, const vk::BufferRange& range) {
    using Item = typename std::decay_t<decltype(values)>::value_type;
    const auto target = range.mapped<Item>();
    PUMICE_CHECK(values.size() <= target.size(), "more attention work than the step has room for");
    std::ranges::copy(values, target.begin());
    return static_cast<uint32_t>(values.size());
  };
  PUMICE_CHECK(step.attention.size() >= lowered_.attention_classes.size(),
               "a step has room for fewer classes of attention");
  for (uint32_t i = 0; i < lowered_.attention_classes.size(); ++i) {
    const AttentionClass& one = lowered_.attention_classes[i];
    AttentionLists& lists = step.attention[i];
    lists.chunks.clear();
    std::ranges::copy_if(chunks, std::back_inserter(lists.chunks),
                         [&](const ops::SequenceChunk& chunk) { return has_chunk(i, chunk); });
    if (one.expands && !expansions_.contains(i)) continue;
    const ops::FlashAttention& attention =
        one.expands ? expansions_.at(i).attention() : attention_.at(i);
    ops::AttentionPlanOptions own = options;
    own.tile_tokens = attention.tile_tokens();
    own.window = one.window;
    own.ahead = one.ahead;
    if (one.expands) own.split_tokens = 0;
    ops::plan_attention(lists.chunks, own, lists.plan);
    if (one.expands) {  // keys of one sequence at a time
      for (ops::AttentionItem& item : lists.plan.tile_items) item.seq = 0;
    }
    if (!lists.horizons.empty()) write_horizons(chunks, own.ahead, lists.horizons);
    PUMICE_CHECK(own.ahead == 0 || !lists.horizons.empty(), "a step that sees no keys ahead");
    write(attention.tile_grid_of(write(lists.plan.tile_items, lists.tile_items)), lists.tile_grid);
    write(attention.row_grid_of(write(lists.plan.row_items, lists.row_items)), lists.row_grid);
    write(attention.reduce_grid_of(write(lists.plan.reduce_items, lists.reduce_items)),
          lists.reduce_grid);
  }
}

bool Decoder::has_chunk(uint32_t attention_class, const ops::SequenceChunk& chunk) const {
  if (lowered_.attention_classes[attention_class].expands) {
    const auto expansion = expansions_.find(attention_class);
    return expansion != expansions_.end() && expansion->second.takes(chunk);
  }
  return std::ranges::none_of(expansions_, [&](const auto& entry) {
    const auto& [number, expansion] = entry;
    return lowered_.attention_classes[number].expands == attention_class && expansion.takes(chunk);
  });
}

uint32_t Decoder::split_classes(const StepArgs& step) {
  uint32_t bits = 0;
  for (size_t i = 0; i < step.attention.size(); ++i) {
    if (!step.attention[i].plan.reduce_items.empty()) bits |= 1u << i;
  }
  return bits;
}

bool Decoder::rows_fit(const StepArgs& step, const vk::SegmentLimit& limit) const {
  for (const auto& [i, attention] : attention_) {
    const ops::AttentionPlan& plan = step.attention[i].plan;
    if (!limit.holds(attention.row_cost(plan.row_keys, plan.row_scores))) return false;
  }
  return true;
}

void Decoder::record(vk::Recorder& recorder, const StepArgs& step,
                     const SequenceMemory& memory) const {
  Recording(*this, recorder, step, memory).run();
}

}  // namespace pumice
