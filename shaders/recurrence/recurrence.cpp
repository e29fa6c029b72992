#include "shaders/recurrence/recurrence.hpp"

#include <algorithm>

#include "shaders/common/row_shares.hpp"
#include "shaders/common/tuning.hpp"
#include "shaders/recurrence/recurrence.h"
#include "shaders/recurrence/recurrence_pieces.h"
#include "shaders/recurrence/recurrence_states.h"
#include "shaders/spirv.hpp"

namespace pumice::ops {
namespace {

constexpr uint32_t kLanes = 16;  // of a column, as in the kernel
constexpr uint32_t kColumns = RecurrenceSpec{}.workgroup_size / kLanes;
constexpr uint64_t kFloat = 4;

constexpr std::string_view kPiecesModule = "recurrence.pieces";
constexpr RecurrencePiecesSpec kPiecesSpec;
constexpr uint32_t kPieceColumns =
    kPiecesSpec.workgroup_size / RECURRENCE_PIECES_LANES * RECURRENCE_PIECES_LANE_COLUMNS;
constexpr uint32_t kRoundRows = RECURRENCE_PIECES_LANES / RECURRENCE_PIECES_LANE_COLUMNS;

/// What kernels are told of a shape.
template <typename Spec>
Spec shape_constants(const Recurrence::Shape& shape) {
  Spec spec;
  spec.key_dim = shape.key_dim;
  spec.value_dim = shape.value_dim;
  spec.key_heads = shape.n_key_heads;
  spec.heads_per_key = shape.n_heads / shape.n_key_heads;
  spec.by_remainder = shape.by_remainder ? 1u : 0u;
  spec.has_d = shape.has_d ? 1u : 0u;
  if constexpr (requires { spec.decay; }) {
    const bool keys_decay = shape.decay == Recurrence::Decay::kKey;
    spec.delta = shape.delta ? 1u : 0u;
    spec.decay = keys_decay ? RECURRENCE_DECAY_KEY : RECURRENCE_DECAY_HEAD;
  }
  return spec;
}

Status check_pieces(const vk::DevicePlan& device, const Recurrence::Shape& shape,
                    uint32_t piece_rows) {
  if (shape.decay == Recurrence::Decay::kState) {
    return make_error(ErrorCode::kInvalidArgument,
                      "recurrence: states that decay number by number have no form in pieces");
  }
  if (piece_rows % kRoundRows != 0 || piece_rows > Recurrence::kMostPieceRows) {
    return make_error(ErrorCode::kInvalidArgument,
                      "recurrence: pieces of {} rows; expected a multiple of {} up to {}",
                      piece_rows, kRoundRows, Recurrence::kMostPieceRows);
  }
  if (const uint32_t bytes = Recurrence::shared_bytes(shape, piece_rows);
      bytes > device.max_shared_bytes) {
    return make_error(ErrorCode::kInvalidArgument,
                      "recurrence: pieces of {} rows need {} bytes of shared memory and there are "
                      "{}; use smaller ones",
                      piece_rows, bytes, device.max_shared_bytes);
  }
  return {};
}

}  // namespace

uint32_t Recurrence::shared_bytes(const Shape& shape, uint32_t piece_rows) {
  const uint32_t row_quads = (shape.key_dim + 3) / 4 | 1;
  const bool keys_decay = shape.decay == Decay::kKey;
  const uint32_t n_rows = keys_decay ? 3 * piece_rows + 1 : 2 * piece_rows;
  const uint32_t slices = keys_decay ? kPiecesSpec.workgroup_size / piece_rows : 0;
  const uint32_t partials = std::max(RECURRENCE_PIECES_LANES * (kPiecesSpec.workgroup_size + 1),
                                     slices * (piece_rows * piece_rows + 1));
  const uint32_t floats = n_rows * row_quads * 4 + piece_rows * (piece_rows + 1) +
                          2 * piece_rows * kPieceColumns + partials + 4 * piece_rows;
  return floats * kFloat;
}

Recurrence::Tuning Recurrence::tuned(const vk::PipelineLibrary& pipelines, const Shape& shape) {
  constexpr std::string_view kDecays[] = {"head", "key", "state"};
  const auto facts = vk::TuningFacts()
                         .set("decay", kDecays[static_cast<size_t>(shape.decay)])
                         .set("key_dim", shape.key_dim);
  const vk::TuningRow& row =
      take_row(pipelines, "recurrence", facts, [&](const vk::TuningRow& one) -> std::string {
        if (one.choice != "pieces") return "";
        if (pipelines.is_rejected(kPiecesModule)) return "they failed this device's self-test";
        const Status fits =
            check_pieces(pipelines.device()->plan(), shape, one.number("piece_rows"));
        return fits.ok() ? "" : fits.error().message;
      });
  if (row.choice != "pieces") return {};
  return {.piece_rows = row.number("piece_rows"), .least_rows = row.number("least_rows")};
}

Result<Recurrence> Recurrence::plan(vk::PipelineLibrary& pipelines, const Shape& shape,
                                    const Tuning& tuning) {
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
  if (shape.decay == Decay::kState && (shape.delta || shape.key_dim > kMostStateKeyDim)) {
    return make_error(
        ErrorCode::kInvalidArgument,
        "recurrence: states of {} keys decay number by number{}; expected at most {}, "
        "and no delta",
        shape.key_dim, shape.delta ? " with a delta" : "", kMostStateKeyDim);
  }
  Recurrence op;
  op.shape_ = shape;
  op.tuning_ = tuning;
  if (tuning.piece_rows != 0) {
    PUMICE_TRY_STATUS(check_pieces(pipelines.device()->plan(), shape, tuning.piece_rows));
  }
  if (shape.decay == Decay::kState) {
    PUMICE_TRY(const vk::ShaderModule module, find_spirv("recurrence.states"));
    const auto spec = shape_constants<RecurrenceStatesSpec>(shape);
    PUMICE_TRY(op.pipeline_, declare_kernel<RecurrencePush>(pipelines, module, spec));
    op.columns_ = spec.workgroup_size;
    return op;
  }
  op.columns_ = kColumns;
  PUMICE_TRY(op.pipeline_, declare_kernel<RecurrencePush>(pipelines, "recurrence",
                                                          shape_constants<RecurrenceSpec>(shape)));
  if (tuning.piece_rows == 0) return op;
  auto pieces = shape_constants<RecurrencePiecesSpec>(shape);
  pieces.piece_rows = tuning.piece_rows;
  PUMICE_TRY(const vk::ShaderModule pieces_module, find_spirv(kPiecesModule));
  PUMICE_TRY(op.in_pieces_, declare_kernel<RecurrencePush>(pipelines, pieces_module, pieces));
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
  // What rows come one after another in: rows, or whole pieces of them.
  const bool pieces = in_pieces_ != nullptr && args.item_rows >= tuning_.least_rows;
  const uint32_t unit = pieces ? tuning_.piece_rows : 1;
  const uint32_t n_columns = pieces ? kPieceColumns : columns_;
  const uint32_t n_units = (args.item_rows + unit - 1) / unit;
  // However many heads there are at once: what is too long is cut by rows first. Shares of rows go
  // on from the state that the one before has written.
  const Shares shares(n_units, rows_within(recorder.segment_limit(), n_units, [&](uint64_t n) {
                        return cost(args, shape_.n_heads, n * unit);
                      }));
  for (uint32_t i = 0; i < shares.size(); ++i) {
    const Share share = shares[i];
    push.first_row = share.first * unit;
    push.n_rows = std::min(share.n * unit, args.item_rows - push.first_row);
    dispatch_rows(
        recorder, pieces ? *in_pieces_ : *pipeline_, push, shape_.n_heads,
        {columns(args.q, n_keys, kRead), columns(args.k, n_keys, kRead),
         columns(args.v, n_values, kRead), columns(args.step, n_steps, kRead),
         columns(shape_.delta ? args.beta : Rows{}, shape_.n_heads, kRead),
         columns(args.y, n_values, vk::AccessMode::kWrite), vk::reads(args.a), vk::reads(args.bias),
         vk::reads(args.d), vk::reads(args.items), vk::updates(args.states)},
        [&](uint64_t n_heads) { return cost(args, n_heads, push.n_rows); },
        [&](RecurrencePush& moved, uint32_t first, uint32_t n_heads) {
          moved.first_head = first;
          return vk::Grid{(shape_.value_dim + n_columns - 1) / n_columns, n_heads, args.n_items};
        });
  }
}

}  // namespace pumice::ops
