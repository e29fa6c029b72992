#include "shaders/recurrence/recurrence_case.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace pumice::ops {
namespace {

constexpr double kUnit = 0x1p-24;

/// A number and how far fp32 may be from it.
struct Number {
  double value = 0;
  double error = 0;
};

/// One of a state, and the sum of the magnitudes that a piece's sums for it may have on the way.
struct StateNumber {
  double value = 0;
  double error = 0;
  double magnitude = 0;
};

/// softplus(x) of a sum of two.
Number softplus(double x) {
  const double value = std::log1p(std::exp(x));
  // The exponential's 3 + 2|x| units, the series' and the sum's few.
  return {value, 2 * kUnit * value * (10 + 2 * std::abs(x)) + kUnit * std::abs(x)};
}

/// exp(a dt), perhaps as a part of the exponential of a sum of so many.
Number decay(double a, const Number& dt, uint32_t n_summed) {
  const double exponent = std::abs(a * dt.value);
  const double value = std::exp(-exponent);
  return {value, value * (2 * kUnit * (4 + (2 + n_summed) * exponent) + std::abs(a) * dt.error) +
                     0x1p-126};
}

class RecurrenceReference {
 public:
  RecurrenceReference(const RecurrenceCase& test, const StateCase& states)
      : test_(test), states_(states) {}

  std::vector<float> q, k, v, step, beta, a, bias, d;
  float q_scale = 0.25f;
  float k_scale = 0.5f;
  uint32_t q_stride = 0, k_stride = 0, v_stride = 0, step_stride = 0, beta_stride = 0;

  /// What one column of one head's state is after a sequence's rows, and what its rows give.
  void column(uint32_t seq, uint32_t head, uint32_t column, Expectation& y, uint32_t y_stride,
              Expectation& after) const {
    const Recurrence::Shape& shape = test_.shape;
    const uint32_t key_head =
        shape.by_remainder ? head % shape.n_key_heads : head / (shape.n_heads / shape.n_key_heads);
    const StateCase::Sequence& sequence = test_.sequences[seq];
    const size_t at = (size_t{head} * shape.value_dim + column) * shape.key_dim;
    std::vector<StateNumber> s(shape.key_dim);
    for (uint32_t i = 0; i < shape.key_dim && !sequence.begins; ++i) {
      s[i].value = states_.before(seq)[at + i];
    }
    for (uint32_t r = 0; r < sequence.n_rows; ++r) {
      // One row after another nothing is summed but the state itself.
      const bool anew = test_.piece_rows == 0 || r % test_.piece_rows == 0;
      for (StateNumber& one : s) one.magnitude = anew ? std::abs(one.value) : one.magnitude;
      const uint32_t row = states_.first_row(seq) + r;
      const Number out = next(row, head, key_head, column, s);
      const size_t y_at = size_t{row} * y_stride + head * shape.value_dim + column;
      y.reference[y_at] = out.value;
      y.bound[y_at] = out.error;
    }
    for (uint32_t i = 0; i < shape.key_dim; ++i) {
      after.reference[states_.after_index(seq) + at + i] = s[i].value;
      after.bound[states_.after_index(seq) + at + i] = s[i].error;
    }
  }

 private:
  /// What step `i` of a row becomes.
  Number dt(uint32_t row, size_t i) const {
    return softplus(double{step[row * step_stride + i]} + bias[i]);
  }
  /// What a row leaves of number `i` of a column.
  Number left(uint32_t row, uint32_t head, uint32_t column, uint32_t i) const {
    const Recurrence::Shape& shape = test_.shape;
    switch (shape.decay) {
      case Recurrence::Decay::kHead:
        return decay(a[head], dt(row, head), test_.piece_rows);
      case Recurrence::Decay::kKey:
        return decay(a[head], dt(row, size_t{head} * shape.key_dim + i), 0);
      case Recurrence::Decay::kState: {
        const size_t channel = size_t{head} * shape.value_dim + column;
        return decay(a[channel * shape.key_dim + i], dt(row, channel), 0);
      }
    }
    return {};
  }

  /// One row: the state after it, and what it gives.
  Number next(uint32_t row, uint32_t head, uint32_t key_head, uint32_t column,
              std::vector<StateNumber>& s) const {
    const Recurrence::Shape& shape = test_.shape;
    const uint32_t n = shape.key_dim;
    // Of a sum over keys, and over a piece's rows.
    const double n_rounded = n + 2 + (test_.piece_rows == 0 ? 0 : 2 * test_.piece_rows + 8);
    Number known;
    double magnitude = 0;
    const double own = v[row * v_stride + head * shape.value_dim + column];
    const auto key = [&](uint32_t i) {
      return double{k[row * k_stride + key_head * n + i]} * k_scale;
    };
    for (uint32_t i = 0; i < n; ++i) {
      const Number factor = left(row, head, column, i);
      s[i].error = s[i].error * factor.value + s[i].magnitude * factor.error;
      s[i].value *= factor.value;
      s[i].magnitude *= factor.value;
      s[i].error += kUnit * s[i].magnitude;
      known.value += s[i].value * key(i);
      known.error += s[i].error * std::abs(key(i));
      magnitude += s[i].magnitude * std::abs(key(i));
    }
    known.error += n_rounded * kUnit * magnitude;
    const size_t channel = size_t{head} * shape.value_dim + column;
    const size_t own_step = shape.decay == Recurrence::Decay::kState ? channel : head;
    Number u;
    if (shape.delta) {
      const double raw = beta[row * beta_stride + head];
      const double b = 1 / (1 + std::exp(-raw));
      u.value = b * (own - known.value);
      const double most = test_.piece_rows == 0 ? std::abs(known.value) : magnitude;
      u.error = b * known.error + 2 * kUnit * (9 + 2 * std::abs(raw)) * b * (std::abs(own) + most);
    } else {
      const Number own_dt = dt(row, own_step);
      u = {own_dt.value * own, (own_dt.error + kUnit * own_dt.value) * std::abs(own)};
    }
    Number y;
    magnitude = 0;
    for (uint32_t i = 0; i < n; ++i) {
      s[i].error += u.error * std::abs(key(i)) + 2 * kUnit * std::abs(u.value * key(i));
      s[i].value += u.value * key(i);
      s[i].magnitude = test_.piece_rows == 0 ? std::abs(s[i].value)
                                             : s[i].magnitude + std::abs(u.value * key(i));
      s[i].error += 2 * kUnit * s[i].magnitude;
      const double query = double{q[row * q_stride + key_head * n + i]} * q_scale;
      y.value += s[i].value * query;
      y.error += s[i].error * std::abs(query);
      magnitude += s[i].magnitude * std::abs(query);
    }
    y.error += n_rounded * kUnit * magnitude;
    if (shape.has_d) {
      y.value += d[own_step] * own;
      y.error += 2 * kUnit * (std::abs(d[own_step] * own) + std::abs(y.value));
    }
    return y;
  }

  const RecurrenceCase& test_;
  const StateCase& states_;
};

/// Only what is expected remains, by its place.
void keep_elements(Expectation& expectation, const std::vector<double>& unexpected) {
  std::vector<double> reference, bound;
  for (size_t i = 0; i < expectation.reference.size(); ++i) {
    const bool same = std::isnan(unexpected[i]) ? std::isnan(expectation.reference[i])
                                                : expectation.reference[i] == unexpected[i];
    if (same && expectation.bound[i] == 0) continue;
    expectation.elements.push_back(i);
    reference.push_back(expectation.reference[i]);
    bound.push_back(expectation.bound[i]);
  }
  expectation.reference = std::move(reference);
  expectation.bound = std::move(bound);
}

Result<PreparedOp> prepare_case(OpBed& bed, const RecurrenceCase& test, bool bench) {
  const Recurrence::Shape& shape = test.shape;
  const StateCase states(test.sequences, static_cast<uint32_t>(shape.state_floats()), 9);
  const uint32_t rows = states.n_rows();
  const uint32_t n_keys = shape.n_key_heads * shape.key_dim;
  const uint32_t n_values = shape.n_heads * shape.value_dim;
  RecurrenceReference reference(test, states);
  const auto fill = [&](std::vector<float>& values, uint32_t& stride, uint32_t n, uint32_t seed) {
    stride = n + (bench ? 0 : seed);
    values = OpBed::normal_floats(size_t{rows} * stride, seed);
  };
  fill(reference.q, reference.q_stride, n_keys, 1);
  fill(reference.k, reference.k_stride, n_keys, 2);
  fill(reference.v, reference.v_stride, n_values, 3);
  const uint32_t n_steps = shape.n_heads * shape.n_steps();
  fill(reference.step, reference.step_stride, n_steps, 4);
  fill(reference.beta, reference.beta_stride, shape.n_heads, 5);
  // Over many rows a delta is bounded only if keys are, as models' are; and states that last let
  // every row of a piece matter.
  const bool lasts = states.most_rows() > 16;
  if (lasts) reference.k_scale = 1 / std::sqrt(static_cast<float>(shape.key_dim));
  reference.a = OpBed::normal_floats(shape.a_floats(), 6);
  const float a_scale = test.a_scale != 0 ? test.a_scale : (lasts ? 0.05f : 1.0f);
  for (float& a : reference.a) a = -std::abs(a) * a_scale;
  reference.bias = OpBed::normal_floats(n_steps, 7, lasts ? 1.0f : 3.0f);
  reference.d = OpBed::normal_floats(n_steps, 8);

  Recurrence::Args args{.q_scale = reference.q_scale,
                        .k_scale = reference.k_scale,
                        .n_items = states.n_sequences(),
                        .state_offset_bytes = StateCase::offset_bytes(),
                        .rows = rows,
                        .item_rows = states.most_rows()};
  const auto upload = [&](const std::vector<float>& values, uint32_t stride,
                          Recurrence::Rows& target) -> Status {
    PUMICE_TRY(target.range, bed.input(values));
    target.stride = stride;
    return {};
  };
  PUMICE_TRY_STATUS(upload(reference.q, reference.q_stride, args.q));
  PUMICE_TRY_STATUS(upload(reference.k, reference.k_stride, args.k));
  PUMICE_TRY_STATUS(upload(reference.v, reference.v_stride, args.v));
  PUMICE_TRY_STATUS(upload(reference.step, reference.step_stride, args.step));
  if (shape.delta) PUMICE_TRY_STATUS(upload(reference.beta, reference.beta_stride, args.beta));
  PUMICE_TRY(args.a, bed.input(reference.a));
  PUMICE_TRY(args.bias, bed.input(reference.bias));
  PUMICE_TRY(args.d, bed.input_if(shape.has_d, reference.d));
  args.y.stride = n_values + (bench ? 0 : 2);
  PUMICE_TRY(args.y.range, bed.output(size_t{rows} * args.y.stride * 4));
  PUMICE_TRY(const StateCase::Memory memory, states.memory(bed));
  args.items = memory.items;
  args.states = memory.pages;
  PUMICE_TRY(const Recurrence op,
             Recurrence::plan(bed.pipelines(), shape, {.piece_rows = test.piece_rows}));

  Expectation y{.name = "y",
                .output = args.y.range,
                .reference = std::vector<double>(size_t{rows} * args.y.stride, NAN),
                .bound = std::vector<double>(size_t{rows} * args.y.stride, 0)};
  Expectation after = states.expectation(memory);
  const auto unexpected_y = y.reference, unexpected_after = after.reference;
  for (uint32_t seq = 0; seq < states.n_sequences(); ++seq) {
    for (uint32_t head = 0; head < shape.n_heads; ++head) {
      for (uint32_t column = 0; column < shape.value_dim; ++column) {
        // One of the first head's and the last head's last.
        const bool sampled = head == 0 ? column == shape.value_dim / 2
                                       : head + 1 == shape.n_heads && column + 1 == shape.value_dim;
        if (bench && !sampled) continue;
        reference.column(seq, head, column, y, args.y.stride, after);
      }
    }
  }
  if (bench) {
    keep_elements(y, unexpected_y);
    keep_elements(after, unexpected_after);
  }
  const auto run = [=](vk::Recorder& recorder) { op.record(recorder, args); };
  PreparedOp prepared{.record =
                          [=](vk::Recorder& recorder) {
                            states.restore(recorder, memory);
                            run(recorder);
                          },
                      .expected = {std::move(y), std::move(after)}};
  if (bench) prepared.rotation.push_back(run);  // it reads one page and writes another
  return prepared;
}

}  // namespace

std::string RecurrenceCase::name() const {
  constexpr std::array<const char*, 3> kDecays = {"", " keys_decay", " states_decay"};
  return fmt::format("heads={}/{} dims={}/{}{}{}{}{} {}{}{}", shape.n_heads, shape.n_key_heads,
                     shape.value_dim, shape.key_dim, shape.by_remainder ? " by_remainder" : "",
                     shape.delta ? " delta" : "", shape.has_d ? " d" : "",
                     kDecays.at(static_cast<size_t>(shape.decay)), StateCase::name(sequences),
                     a_scale == 0 ? "" : fmt::format(" a={}", a_scale),
                     piece_rows == 0 ? "" : fmt::format(" pieces={}", piece_rows));
}

bool RecurrenceCase::supported(const vk::DevicePlan& device) const {
  return piece_rows == 0 || Recurrence::shared_bytes(shape, piece_rows) <= device.max_shared_bytes;
}

Result<PreparedOp> RecurrenceCase::prepare(OpBed& bed) const {
  return prepare_case(bed, *this, false);
}

Result<PreparedOp> RecurrenceCase::prepare_bench(OpBed& bed) const {
  return prepare_case(bed, *this, true);
}

}  // namespace pumice::ops
