#include "models/calls/embed.hpp"

#include "models/calls/bound_call.hpp"
#include "shaders/embedding/embedding.hpp"

namespace pumice {
namespace {

class BoundEmbed final : public CallOfOp<call::Embed, ops::Embedding> {
 public:
  using CallOfOp::CallOfOp;

  void use_weights(const Lowered& lowered, const ModelWeights& weights) override {
    table_ = weights.matrix(lowered.matrices[c.table][0]);
  }

  void record(const StepContext& step) const override {
    op.record(step.recorder, {.tokens = c.by_position ? step.step.positions : step.step.tokens,
                              .sampled = c.by_position ? vk::BufferRange{} : step.memory.sampled,
                              .table = &table_,
                              .y = step.at(c.y),
                              .rows = step.n_rows,
                              .scale = c.scale});
  }

 private:
  WeightMatrix table_;
};

}  // namespace

BindResult bind(const call::Embed& c, Binder& binder) {
  const MatrixRows& table = binder.shared.lowered.matrices[c.table][0];
  PUMICE_TRY(ops::Embedding op,
             ops::Embedding::plan(binder.pipelines, *binder.weights.matrix(table).type));
  return make_bound<BoundEmbed>(c, std::move(op));
}

}  // namespace pumice
