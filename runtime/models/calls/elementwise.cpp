#include "models/calls/elementwise.hpp"

#include "models/calls/bound_call.hpp"

namespace pumice {
namespace {

class BoundGated final : public CallOfOp<call::Gated, ops::GatedActivation> {
 public:
  using CallOfOp::CallOfOp;

  void record(const StepContext& step) const override {
    op.record(step.recorder,
              {.gate_up = step.at(c.gate_up), .y = step.at(c.y), .rows = step.n_rows, .n = c.n});
  }
};

class BoundElementwise final : public CallOfOp<call::Elementwise, ops::Elementwise> {
 public:
  using CallOfOp::CallOfOp;

  void record(const StepContext& step) const override {
    ops::Elementwise::Args args{.a = step.at(c.a),
                                .a_stride = step.stride(c.a),
                                .y = step.at(c.y),
                                .y_stride = step.stride(c.y),
                                .rows = step.n_rows,
                                .n = c.n,
                                .factor = static_cast<float>(c.factor),
                                .xielu = c.xielu,
                                .row_index = step.row_index(c.gathers)};
    args.a_group = c.a_group;
    args.y_group = c.y_group;
    if (c.b) {
      args.b = step.at(*c.b);
      args.b_stride = step.stride(*c.b);
      args.b_group = c.b_group;
    } else if (c.bias) {
      args.b = step.vector(c.bias->vector).from(StepContext::kFloatBytes * c.bias->first);
    }
    op.record(step.recorder, args);
  }
};

}  // namespace

BindResult bind(const call::Gated& c, Binder& binder) {
  PUMICE_TRY(ops::GatedActivation op, ops::GatedActivation::plan(binder.pipelines, c.kind));
  return make_bound<BoundGated>(c, std::move(op));
}

BindResult bind(const call::Elementwise& c, Binder& binder) {
  PUMICE_TRY(ops::Elementwise op, ops::Elementwise::plan(binder.pipelines, c.kind));
  return make_bound<BoundElementwise>(c, std::move(op));
}

}  // namespace pumice
