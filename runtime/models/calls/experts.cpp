#include "models/calls/experts.hpp"

#include "models/calls/bound_call.hpp"
#include "shaders/experts/experts.hpp"

namespace pumice {
namespace {

ops::Route::Kind route_kind(const call::Route& c, Routing routing) {
  using Probability = ops::Route::Kind::Probability;
  const bool sigmoid = c.router.probability == Router::Probability::kSigmoid;
  return {.probability = sigmoid ? Probability::kSigmoid : Probability::kSoftmax,
          .biased = c.bias.has_value(),
          .grouped = c.router.n_groups > 1,
          .renormalised = c.router.renormalised,
          .gained = c.gains.has_value(),
          .given = routing == Routing::kGiven};
}

/// Routes of the step's rows by expert; none where its rows are multiplied pair by pair.
template <typename C>
std::optional<ops::ExpertGemm::Groups> groups_of(const StepContext& step, const C& c) {
  if (!step.shared.expert_gemm ||
      !step.shared.expert_gemm->suits(step.n_rows, c.n_used, c.n_experts)) {
    return std::nullopt;
  }
  return ops::ExpertGemm::Groups{.range = step.at(c.groups),
                                 .rows = step.n_rows,
                                 .n_used = c.n_used,
                                 .n_experts = c.n_experts};
}

class BoundExpertLinear final : public CallOfOp<call::ExpertLinear, ops::ExpertLinear> {
 public:
  using CallOfOp::CallOfOp;

  void use_weights(const Lowered& lowered, const ModelWeights& weights) override {
    matrix_ = weights.matrix(lowered.matrices[c.matrices][0]);
  }

  uint64_t scratch_bytes(const SharedByCalls& shared, uint32_t n_rows) const override {
    if (!shared.expert_gemm) return 0;
    return shared.expert_gemm->x_bytes(uint64_t{n_rows} * (c.row_each ? c.n_used : 1),
                                       matrix_.n_cols);
  }

  void record(const StepContext& step) const override {
    const uint32_t x_rank_stride = c.row_each ? matrix_.n_cols : 0;
    if (const auto groups = groups_of(step, c)) {
      step.shared.expert_gemm->record(step.recorder, {.weights = matrix_,
                                                      .x = step.at(c.x),
                                                      .x_stride = step.stride(c.x),
                                                      .x_rank_stride = x_rank_stride,
                                                      .groups = *groups,
                                                      .scratch = step.shared.linear_scratch,
                                                      .bias = step.vector(c.bias),
                                                      .y = step.at(c.y),
                                                      .y_stride = c.n_rows});
      return;
    }
    op.record(step.recorder, {.weights = matrix_,
                              .n_experts = c.n_experts,
                              .x = step.at(c.x),
                              .x_stride = step.stride(c.x),
                              .x_rank_stride = x_rank_stride,
                              .routes = step.at(c.routes),
                              .bias = step.vector(c.bias),
                              .y = step.at(c.y),
                              .y_stride = c.n_rows,
                              .rows = step.n_rows,
                              .n_used = c.n_used});
  }

 private:
  WeightMatrix matrix_;
};

}  // namespace

BindResult bind(const call::Route& c, Binder& binder) {
  PUMICE_TRY(const ops::Route op,
             ops::Route::plan(binder.pipelines, route_kind(c, binder.shared.routing)));
  return make_recorded([=](const StepContext& step) {
    op.record(step.recorder, {.scores = step.at(c.scores),
                              .bias = step.vector(c.bias),
                              .gains = step.vector(c.gains),
                              .routes = step.at(c.routes),
                              .rows = step.n_rows,
                              .n_experts = c.n_experts,
                              .n_used = c.n_used,
                              .n_groups = c.router.n_groups,
                              .n_used_groups = c.router.n_used_groups,
                              .scale = static_cast<float>(c.router.scale)});
  });
}

BindResult bind(const call::GroupRoutes& c, Binder&) {
  return make_recorded([=](const StepContext& step) {
    const auto groups = groups_of(step, c);
    if (!groups) return;
    step.shared.expert_gemm->record_groups(step.recorder, step.at(c.routes), *groups);
  });
}

BindResult bind(const call::ExpertLinear& c, Binder& binder) {
  const MatrixRows& rows = binder.shared.lowered.matrices[c.matrices][0];
  const WeightType& type = *binder.weights.matrix(rows).type;
  binder.multiplies_experts(type, c.n_used, c.n_experts);
  PUMICE_TRY(ops::ExpertLinear op,
             ops::ExpertLinear::plan(binder.pipelines, type, c.bias.has_value()));
  return make_bound<BoundExpertLinear>(c, std::move(op));
}

BindResult bind(const call::Combine& c, Binder& binder) {
  PUMICE_TRY(const ops::Combine op, ops::Combine::plan(binder.pipelines));
  return make_recorded([=](const StepContext& step) {
    op.record(step.recorder, {.x = step.at(c.x),
                              .routes = step.at(c.routes),
                              .y = step.at(c.y),
                              .rows = step.n_rows,
                              .n_used = c.n_used,
                              .n = c.n});
  });
}

}  // namespace pumice
