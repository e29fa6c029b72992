#include "models/calls/elementwise.hpp"

#include "models/calls/bound_call.hpp"

namespace pumice {
namespace {

ops::Elementwise::Kind kind_of(ActivationKind kind) {
  using Kind = ops::Elementwise::Kind;
  constexpr Kind kKinds[] = {Kind::kSilu, Kind::kGelu, Kind::kGeluTanh, Kind::kSigmoid,
                             Kind::kRelu};
  return kKinds[static_cast<size_t>(kind)];
}

call::Elementwise on_one(ops::Elementwise::Kind kind, const OneValue& at, double factor,
                         const ops::Elementwise::Xielu& xielu = {}) {
  return {.kind = kind,
          .a = at.x,
          .y = at.y,
          .n = at.n,
          .factor = factor,
          .gathers = false,
          .xielu = xielu};
}

class BoundGated final : public CallOfOp<call::Gated, ops::GatedActivation> {
 public:
  using CallOfOp::CallOfOp;

  std::optional<RowsOfView> makes_planes(const SharedByCalls&) const override {
    return op.makes_planes(c.n) ? std::optional(RowsOfView{c.y, c.n}) : std::nullopt;
  }

  void record(const StepContext& step) const override {
    op.record(step.recorder, {.gate_up = step.at(c.gate_up),
                              .y = step.at(c.y),
                              .rows = step.n_rows,
                              .n = c.n,
                              .planes = step.planes});
  }
};

}  // namespace

call::Elementwise call_of(const op::Activation& o, const OneValue& at) {
  return on_one(kind_of(o.kind), at, 0);
}

call::Elementwise call_of(const op::Xielu& o, const OneValue& at) {
  return on_one(ops::Elementwise::Kind::kXielu, at, o.beta,
                {.alpha_p = o.alpha_p, .alpha_n = o.alpha_n, .eps = o.eps});
}

call::Elementwise call_of(const op::Scale& o, const OneValue& at) {
  return on_one(ops::Elementwise::Kind::kScale, at, o.factor);
}

call::Elementwise call_of(const op::Clamp& o, const OneValue& at) {
  return on_one(o.both_sides ? ops::Elementwise::Kind::kWithin : ops::Elementwise::Kind::kAtMost,
                at, o.limit);
}

call::Elementwise call_of(const op::SoftCap& o, const OneValue& at) {
  return on_one(ops::Elementwise::Kind::kSoftCap, at, o.cap);
}

BindResult bind(const call::Gated& c, Binder& binder) {
  PUMICE_TRY(const ops::GatedActivation op, ops::GatedActivation::plan(binder.pipelines, c.kind));
  return make_bound<BoundGated>(c, op);
}

BindResult bind(const call::Elementwise& c, Binder& binder) {
  PUMICE_TRY(const ops::Elementwise op, ops::Elementwise::plan(binder.pipelines, c.kind));
  return make_recorded([=](const StepContext& step) {
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
  });
}

}  // namespace pumice
