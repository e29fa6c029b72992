#include "models/calls/norms.hpp"

#include "models/calls/bound_call.hpp"
#include "shaders/layer_norm/layer_norm.hpp"
#include "shaders/rms_norm/rms_norm.hpp"

namespace pumice {
namespace {

class BoundRmsNorm final : public CallOfOp<call::RmsNorm, ops::RmsNorm> {
 public:
  using CallOfOp::CallOfOp;

  std::optional<RowsOfView> makes_planes(const SharedByCalls& shared) const override {
    const auto stride = [&](const View& view) { return shared.lowered.buffers[view.buffer].width; };
    const bool can = c.n_groups == 1 && c.x.first % 4 == 0 && c.y.first % 4 == 0 &&
                     op.makes_planes(c.n, stride(c.x), stride(c.y));
    return can ? std::optional(RowsOfView{c.y, c.n}) : std::nullopt;
  }

  void record(const StepContext& step) const override {
    op.record(step.recorder, {.x = step.at(c.x),
                              .residual = step.at(c.residual),
                              .weight = step.vector(c.weight),
                              .y = step.at(c.y),
                              .row_index = step.row_index(c.gathers),
                              .rows = step.n_rows,
                              .n = c.n,
                              .eps = c.eps,
                              .n_groups = c.n_groups,
                              .x_stride = step.stride(c.x),
                              .y_stride = step.stride(c.y),
                              .weight_each = c.weight_each,
                              .planes = step.planes});
  }
};

}  // namespace

BindResult bind(const call::RmsNorm& c, Binder& binder) {
  PUMICE_TRY(ops::RmsNorm op, ops::RmsNorm::plan(binder.pipelines));
  return make_bound<BoundRmsNorm>(c, std::move(op));
}

BindResult bind(const call::LayerNorm& c, Binder& binder) {
  PUMICE_TRY(const ops::LayerNorm op, ops::LayerNorm::plan(binder.pipelines));
  return make_recorded([=](const StepContext& step) {
    op.record(step.recorder, {.x = step.at(c.x),
                              .residual = step.at(c.residual),
                              .weight = step.vector(c.weight),
                              .bias = step.vector(c.bias),
                              .y = step.at(c.y),
                              .row_index = step.row_index(c.gathers),
                              .rows = step.n_rows,
                              .n = c.n,
                              .eps = c.eps,
                              .n_groups = c.n_groups,
                              .x_stride = step.stride(c.x),
                              .y_stride = step.stride(c.y)});
  });
}

}  // namespace pumice
