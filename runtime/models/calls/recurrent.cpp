#include "models/calls/recurrent.hpp"

#include <algorithm>

#include "models/calls/bound_call.hpp"
#include "shaders/causal_conv/causal_conv.hpp"

namespace pumice {

BindResult bind(const call::CausalConv& c, Binder& binder) {
  PUMICE_TRY(const ops::CausalConv op,
             ops::CausalConv::plan(binder.pipelines, {.taps = c.taps, .silu = c.silu}));
  return make_recorded([=](const StepContext& step) {
    const StateLayout::Place place = step.place(c.state);
    op.record(step.recorder, {.x = step.at(c.x),
                              .x_stride = step.stride(c.x),
                              .y = step.at(c.y),
                              .y_stride = step.stride(c.y),
                              .weight = step.vector(c.weight),
                              .bias = step.vector(c.bias),
                              .items = step.step.states[place.kind],
                              .n_items = step.step.n_chunks,
                              .row_item = step.step.row_chunk,
                              .states = step.memory.kv,
                              .state_offset_bytes = place.offset_bytes,
                              .rows = step.n_rows,
                              .n = c.n});
  });
}

BindResult bind(const call::Recurrence& c, Binder& binder) {
  const ops::Recurrence::Tuning tuning = binder.shared.invariant
                                             ? ops::Recurrence::Tuning{}
                                             : ops::Recurrence::tuned(binder.pipelines, c.shape);
  if (tuning.piece_rows > 0) {
    binder.alike_rows = std::min(binder.alike_rows, std::max(tuning.least_rows, 2u) - 1);
  }
  PUMICE_TRY(const ops::Recurrence op, ops::Recurrence::plan(binder.pipelines, c.shape, tuning));
  return make_recorded([=](const StepContext& step) {
    const StateLayout::Place place = step.place(c.state);
    const auto rows = [&](const View& view) {
      return ops::Recurrence::Rows{.range = step.at(view), .stride = step.stride(view)};
    };
    op.record(step.recorder, {.q = rows(c.q),
                              .k = rows(c.k),
                              .v = rows(c.v),
                              .step = rows(c.step),
                              .beta = c.beta ? rows(*c.beta) : ops::Recurrence::Rows{},
                              .y = rows(c.y),
                              .q_scale = c.q_scale,
                              .k_scale = c.k_scale,
                              .a = step.vector(c.a),
                              .bias = step.vector(c.bias),
                              .d = step.vector(c.d),
                              .items = step.step.states[place.kind],
                              .n_items = step.step.n_chunks,
                              .states = step.memory.kv,
                              .state_offset_bytes = place.offset_bytes,
                              .rows = step.n_rows,
                              .item_rows = step.step.chunk_rows});
  });
}

}  // namespace pumice
