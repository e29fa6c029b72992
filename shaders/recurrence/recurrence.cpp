#include "shaders/recurrence/recurrence.hpp"

#include <algorithm>

#include "shaders/common/row_shares.hpp"
#include "shaders/recurrence/recurrence.h"
#include "shaders/spirv.hpp"

namespace pumice::ops {
namespace {

constexpr uint32_t kWorkgroupSize = 64;
constexpr uint32_t kLanes = 16;  // of a column, as in the kernel
constexpr uint32_t kColumns = kWorkgroupSize / kLanes;
constexpr uint64_t kFloat = 4;

uint32_t decay_constant(Recurrence::Decay decay) {
  switch (decay) {
    case Recurrence::Decay::kHead:
      return RECURRENCE_DECAY_HEAD;
    case Recurrence::Decay::kKey:
      return RECURRENCE_DECAY_KEY;
    case Recurrence::Decay::kState:
      return RECURRENCE_DECAY_STATE;
  }
  PUMICE_CHECK(false, "a decay without a kernel");
  return 0;
}

}  // namespace

Result<Recurrence> Recurrence::plan(vk::PipelineLibrary& pipelines, const Shape& shape) {
  if (shape.n_heads == 0 || shape.n_key_heads == 0 || shape.n_heads % shape.n_key_heads != 0) {
    return make_error(ErrorCode::kInvalidArgument, "recurrence: {} heads cannot share {} of keys",
                      shape.n_heads, shape.n_key_heads);
  }
  if (shape.key_dim == 0 || shape.key_dim > kMostKeyDim || shape.value_dim == 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "recurrence: heads of {} values and {} keys; expected 1 to {} keys",
                      shape.value_dim, shape.key_dim, kMostKeyDim);
  }
  if (shape.decay == Decay::kKey && !shape.delta) {
    return make_error(ErrorCode::kInvalidArgument,
                      "recurrence: keys decay, and nothing is a delta");
  }
  const RecurrenceSpec spec{.workgroup_size = kWorkgroupSize,
                            .key_dim = shape.key_dim,
                            .value_dim = shape.value_dim,
                            .key_heads = shape.n_key_heads,
                            .heads_per_key = shape.n_heads / shape.n_key_heads,
                            .by_remainder = shape.by_remainder ? 1u : 0u,
                            .delta = shape.delta ? 1u : 0u,
                            .has_d = shape.has_d ? 1u : 0u,
                            .decay = decay_constant(shape.decay)};
  Recurrence op;
  op.shape_ = shape;
  PUMICE_TRY(const vk::ShaderModule module, find_spirv("recurrence"));
  PUMICE_TRY(op.pipeline_, pipelines.declare({.module = module,
                                              .constants = vk::constants_of(spec),
                                              .push_bytes = sizeof(RecurrencePush)}));
  return op;
}

/// Of so many heads and at most so many rows of each item; heads that share keys each read them.
vk::Cost Recurrence::cost(const Args& args, uint64_t n_heads, uint64_t item_rows) const {
  const uint64_t rows = std::min<uint64_t>(args.rows, item_rows * args.n_items);
  const uint64_t keys = shape_.key_dim;
  const uint64_t values = shape_.value_dim;
  const bool by_state = shape_.decay == Decay::kState;
  const uint64_t row_floats = 2 * keys * shape_.n_key_heads / shape_.n_heads + 2 * values +
                              shape_.n_steps() + (shape_.delta ? 1 : 0);
  const uint64_t state_floats = (2 * args.n_items + (by_state ? 1 : 0)) * keys * values;
  // Where each number decays by itself, its exponent and that function of it too.
  const uint64_t of_element = (shape_.delta ? 7 : 5) + (by_state ? 2 : 0);
  return {.bytes = n_heads * (rows * row_floats + state_floats) * kFloat,
          .flops = n_heads * rows * values * (of_element * keys + (shape_.has_d ? 2 : 0))};
}

void Recurrence::record(vk::Recorder& recorder, const Args& args) const {
  RecurrencePush push;
  push.q = args.q.range.address();
  push.k = args.k.range.address();
  push.v = args.v.range.address();
  push.step = args.step.range.address();
  push.beta = (shape_.delta ? args.beta : args.step).range.address();
  push.a = args.a.address();
  push.bias = args.bias.address();
  push.d = (shape_.has_d ? args.d : args.a).address();
  push.y = args.y.range.address();
  push.items = args.items.address();
  push.q_stride = args.q.stride;
  push.k_stride = args.k.stride;
  push.v_stride = args.v.stride;
  push.step_stride = args.step.stride;
  push.beta_stride = args.beta.stride;
  push.y_stride = args.y.stride;
  push.state_offset = args.state_offset_bytes;
  push.q_scale = args.q_scale;
  push.k_scale = args.k_scale;
  const auto columns = [&](const Rows& rows, uint64_t n, vk::AccessMode mode) {
    if (rows.range.empty()) return vk::Access{};
    vk::Access access = vk::writes_columns(rows.range, args.rows, rows.stride * kFloat, n * kFloat);
    access.mode = mode;
    return access;
  };
  const uint64_t n_keys = uint64_t{shape_.n_key_heads} * shape_.key_dim;
  const uint64_t n_values = uint64_t{shape_.n_heads} * shape_.value_dim;
  const uint64_t n_steps = uint64_t{shape_.n_heads} * shape_.n_steps();
  constexpr auto kRead = vk::AccessMode::kRead;
  // One row comes after the other, however many heads there are at once: what is too long is cut
  // by rows first. Shares of rows go on from the state that the one before has written.
  const Shares shares(args.item_rows,
                      rows_within(recorder.segment_limit(), args.item_rows,
                                  [&](uint64_t n) { return cost(args, shape_.n_heads, n); }));
  for (uint32_t i = 0; i < shares.size(); ++i) {
    const Share rows = shares[i];
    push.first_row = rows.first;
    push.n_rows = rows.n;
    dispatch_rows(
        recorder, *pipeline_, push, shape_.n_heads,
        {columns(args.q, n_keys, kRead), columns(args.k, n_keys, kRead),
         columns(args.v, n_values, kRead), columns(args.step, n_steps, kRead),
         columns(shape_.delta ? args.beta : Rows{}, shape_.n_heads, kRead),
         columns(args.y, n_values, vk::AccessMode::kWrite), vk::reads(args.a), vk::reads(args.bias),
         vk::reads(args.d), vk::reads(args.items), vk::updates(args.states)},
        [&](uint64_t n_heads) { return cost(args, n_heads, rows.n); },
        [&](RecurrencePush& moved, uint32_t first, uint32_t n_heads) {
          moved.first_head = first;
          return vk::Grid{(shape_.value_dim + kColumns - 1) / kColumns, n_heads, args.n_items};
        });
  }
}

}  // namespace pumice::ops
