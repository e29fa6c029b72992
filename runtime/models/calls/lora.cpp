#include "models/calls/lora.hpp"

#include "models/calls/bound_call.hpp"
#include "shaders/lora/lora.hpp"

namespace pumice {

BindResult bind(const call::Lora& c, Binder& binder) {
  PUMICE_TRY(const ops::Lora op, ops::Lora::plan(binder.pipelines));
  const ModelWeights::Adapters weights = binder.weights.adapters(c.matrix);  // they stay there
  return make_recorded([=](const StepContext& step) {
    if (!step.step.adapts) return;
    op.record(step.recorder,
              {.x = step.at(c.x),
               .x_stride = step.stride(c.x),
               .a = weights.a,
               .b = weights.b,
               .adapters = c.of_logits ? step.step.logit_adapters : step.step.row_adapters,
               .t = step.at(c.t),
               .y = step.at(c.y),
               .y_stride = step.stride(c.y),
               .rows = step.n_rows,
               .n_in = c.n_in,
               .n_out = c.n_out,
               .first_out = c.first_out,
               .b_stride = c.b_stride,
               .rank = c.rank});
  });
}

}  // namespace pumice
