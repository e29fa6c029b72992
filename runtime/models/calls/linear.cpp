#include "models/calls/linear.hpp"

#include <algorithm>

#include "models/calls/bound_call.hpp"
#include "shaders/gemv/gemv.hpp"
#include "shaders/head_linear/head_linear.hpp"

namespace pumice {
namespace {

class BoundLinear final : public BoundCall {
 public:
  explicit BoundLinear(const call::Linear& c) : c_(c) {}

  static StackedMatrices stack(const call::Linear& c, const Lowered& lowered,
                               const ModelWeights& weights) {
    const std::vector<MatrixRows>& group = lowered.matrices[c.matrices];
    return c.member ? weights.stack({&group[*c.member], 1}) : weights.stack(group);
  }

  void use_weights(const Lowered& lowered, const ModelWeights& weights) override {
    matrices_ = stack(c_, lowered, weights);
  }

  uint64_t scratch_bytes(const SharedByCalls& shared, uint32_t n_rows) const override {
    std::vector<WeightMatrix> matrices;
    for (const auto& member : matrices_.members) matrices.push_back(member.matrix);
    return shared.linear.scratch_bytes(n_rows, matrices);
  }

  bool covers(const SharedByCalls& shared, uint32_t n_rows) const override {
    return begins_norm(shared, n_rows) || gates(shared, n_rows);
  }

  std::optional<RowsOfView> reads_planes(const SharedByCalls& shared,
                                         uint32_t n_rows) const override {
    const bool reads = std::ranges::any_of(matrices_.members, [&](const auto& member) {
      return shared.linear.reads_planes(*member.matrix.type, n_rows);
    });
    return reads ? std::optional(RowsOfView{c_.x, c_.n_columns}) : std::nullopt;
  }

  void record(const StepContext& step) const override {
    std::vector<ops::Linear::Args> args;
    const View y = begins_norm(step.shared, step.n_rows) ? c_.norm->stream
                   : gates(step.shared, step.n_rows)     ? c_.gate->y
                                                         : c_.y;
    for (const StackedMatrices::Member& member : matrices_.members) {
      args.push_back({.weights = member.matrix,
                      .x = step.at(c_.x),
                      .x_stride = step.stride(c_.x),
                      .y = step.at({y.buffer, y.first + member.first_column}),
                      .y_stride = step.stride(y),
                      .rows = step.n_rows,
                      .scratch = step.shared.linear_scratch,
                      .finish = finish(step)});
    }
    step.shared.linear.record(step.recorder, args, step.x_is_made);
  }

 private:
  bool begins_norm(const SharedByCalls& shared, uint32_t n_rows) const {
    return c_.norm && shared.linear.shares_norms(n_rows);
  }
  bool gates(const SharedByCalls& shared, uint32_t n_rows) const {
    return c_.gate && matrices_.members.size() == 1 &&
           shared.linear.gates(matrices_.members.front().matrix, n_rows);
  }

  ops::LinearFinish finish(const StepContext& step) const {
    ops::LinearFinish finish;
    if (begins_norm(step.shared, step.n_rows)) {
      finish.added = {.norm = step.vector(c_.norm->weight),
                      .normed = step.at(c_.norm->normed),
                      .squares = step.at(c_.norm->squares)};
    }
    if (c_.scale && step.shared.linear.shares_norms(step.n_rows)) {
      finish.scaled = {.squares = step.at(c_.scale->squares), .eps = c_.scale->eps};
    }
    if (gates(step.shared, step.n_rows)) finish.gated = c_.gate->kind;
    return finish;
  }

  const call::Linear c_;
  StackedMatrices matrices_;
};

/// Each head's matrix by itself; none where its rows are no whole groups or it is transposed.
std::vector<WeightMatrix> heads_apart(const call::HeadLinear& c, const WeightMatrix& all) {
  std::vector<WeightMatrix> heads;
  const uint32_t head_rows = all.n_rows / c.n_heads;
  const bool whole =
      head_rows % kRowGroup == 0 && c.first_row % kRowGroup == 0 && c.n_rows % kRowGroup == 0;
  for (uint32_t head = 0; whole && !c.transposed && head < c.n_heads; ++head) {
    heads.push_back(all.rows(head * head_rows + c.first_row, c.n_rows));
  }
  return heads;
}

class BoundHeadLinear final : public CallOfOp<call::HeadLinear, ops::HeadLinear> {
  static constexpr uint32_t kHeadsAtOnce = call::HeadLinear::kHeadsAtOnce;

 public:
  using CallOfOp::CallOfOp;

  void use_weights(const Lowered& lowered, const ModelWeights& weights) override {
    matrix_ = weights.matrix(lowered.matrices[c.matrices][0]);
    heads_ = heads_apart(c, matrix_);
  }

  uint64_t scratch_bytes(const SharedByCalls& shared, uint32_t n_rows) const override {
    return heads_.empty() ? 0 : kHeadsAtOnce * head_scratch_bytes(shared, n_rows);
  }

  void record(const StepContext& step) const override {
    if (!c.attention_class) return record_rows(step, 0, step.n_rows);
    // Rows of neighbouring chunks in one go.
    const std::vector<ops::SequenceChunk>& chunks = step.step.attention[*c.attention_class].chunks;
    for (size_t i = 0; i < chunks.size();) {
      const uint32_t first = chunks[i].first_row;
      uint32_t end = first;
      for (; i < chunks.size() && chunks[i].first_row == end; ++i) end += chunks[i].n_rows;
      record_rows(step, first, end - first);
    }
  }

 private:
  uint64_t head_scratch_bytes(const SharedByCalls& shared, uint32_t n_rows) const {
    constexpr uint64_t kAlignment = 16;
    const uint64_t bytes = shared.linear.scratch_bytes(n_rows, {heads_.data(), 1});
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  void record_rows(const StepContext& step, uint32_t first_row, uint32_t n_rows) const {
    const auto from_row = [&](const View& view) {
      return step.at(view).from(StepContext::kFloatBytes * first_row * step.stride(view));
    };
    const ops::HeadLinear::Args args{.weights = matrix_,
                                     .n_heads = c.n_heads,
                                     .first_row = c.first_row,
                                     .n_rows = c.n_rows,
                                     .x = from_row(c.x),
                                     .x_stride = step.stride(c.x),
                                     .x_head_stride = c.x_head_dim,
                                     .y = from_row(c.y),
                                     .y_stride = step.stride(c.y),
                                     .rows = n_rows};
    // Of many rows the usual products are faster, for all that there is one a head.
    const bool apart = step.shared.linear.uses_gemm(n_rows) && !step.shared.invariant;
    if (!apart || heads_.empty()) return op.record(step.recorder, args);
    const uint32_t y_head_dim = c.n_rows + c.x_head_dim - matrix_.n_cols;
    const uint64_t scratch_bytes = head_scratch_bytes(step.shared, n_rows);
    for (uint32_t first = 0; first < c.n_heads; first += kHeadsAtOnce) {
      std::vector<ops::Linear::Args> some;
      for (uint32_t head = first; head < std::min(first + kHeadsAtOnce, c.n_heads); ++head) {
        some.push_back(
            {.weights = heads_[head],
             .x = from_row({c.x.buffer, c.x.first + head * c.x_head_dim}),
             .x_stride = step.stride(c.x),
             .y = from_row({c.y.buffer, c.y.first + head * y_head_dim}),
             .y_stride = step.stride(c.y),
             .rows = n_rows,
             .scratch = step.shared.linear_scratch.from((head - first) * scratch_bytes)});
      }
      for (const auto& head : some) step.shared.linear.record_x(step.recorder, {&head, 1});
      for (const auto& head : some) step.shared.linear.record_products(step.recorder, {&head, 1});
    }
    op.record_kept(step.recorder, args);
  }

  WeightMatrix matrix_;
  std::vector<WeightMatrix> heads_;  // where they can be products apart
};

}  // namespace

BindResult bind(const call::Linear& c, Binder& binder) {
  const StackedMatrices stack = BoundLinear::stack(c, binder.shared.lowered, binder.weights);
  for (const auto& member : stack.members) binder.multiplies(*member.matrix.type);
  return make_bound<BoundLinear>(c);
}

BindResult bind(const call::HeadLinear& c, Binder& binder) {
  const WeightMatrix& matrix = binder.weights.matrix(binder.shared.lowered.matrices[c.matrices][0]);
  if (!heads_apart(c, matrix).empty()) binder.multiplies(*matrix.type);
  PUMICE_TRY(ops::HeadLinear op,
             ops::HeadLinear::plan(binder.pipelines, *matrix.type, c.transposed));
  return make_bound<BoundHeadLinear>(c, std::move(op));
}

}  // namespace pumice
