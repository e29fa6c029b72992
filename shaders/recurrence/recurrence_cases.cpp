#include <array>
#include <cmath>
#include <string>

#include "shaders/common/state_case.hpp"
#include "shaders/op_case.hpp"
#include "shaders/recurrence/recurrence.hpp"

namespace pumice::ops {
namespace {

constexpr double kUnit = 0x1p-24;

struct Case {
  Recurrence::Shape shape;
  std::vector<StateCase::Sequence> sequences;
};

/// A number and how far fp32 may be from it.
struct Number {
  double value = 0;
  double error = 0;
};

/// softplus(x) of a sum of two.
Number softplus(double x) {
  const double value = std::log1p(std::exp(x));
  // The exponential's 3 + 2|x| units, the series' and the sum's few.
  return {value, 2 * kUnit * value * (10 + 2 * std::abs(x)) + kUnit * std::abs(x)};
}

/// exp(a dt)
Number decay(double a, const Number& dt) {
  const double exponent = std::abs(a * dt.value);
  const double value = std::exp(-exponent);
  return {value, value * (2 * kUnit * (4 + 2 * exponent) + std::abs(a) * dt.error) + 0x1p-126};
}

class Reference {
 public:
  Reference(const Case& test, const StateCase& states) : test_(test), states_(states) {}

  std::vector<float> q, k, v, step, beta, a, bias, d;
  float q_scale = 0.25f;
  float k_scale = 0.5f;
  uint32_t q_stride = 0, k_stride = 0, v_stride = 0, step_stride = 0, beta_stride = 0;

  void head(uint32_t seq, uint32_t head, Expectation& y, uint32_t y_stride,
            Expectation& after) const {
    const Recurrence::Shape& shape = test_.shape;
    const uint32_t key_head =
        shape.by_remainder ? head % shape.n_key_heads : head / (shape.n_heads / shape.n_key_heads);
    const StateCase::Sequence& sequence = test_.sequences[seq];
    for (uint32_t column = 0; column < shape.value_dim; ++column) {
      const size_t at = (size_t{head} * shape.value_dim + column) * shape.key_dim;
      std::vector<Number> s(shape.key_dim);
      for (uint32_t i = 0; i < shape.key_dim && !sequence.begins; ++i) {
        s[i].value = states_.before(seq)[at + i];
      }
      for (uint32_t r = 0; r < sequence.n_rows; ++r) {
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
        return decay(a[head], dt(row, head));
      case Recurrence::Decay::kKey:
        return decay(a[head], dt(row, size_t{head} * shape.key_dim + i));
      case Recurrence::Decay::kState: {
        const size_t channel = size_t{head} * shape.value_dim + column;
        return decay(a[channel * shape.key_dim + i], dt(row, channel));
      }
    }
    return {};
  }

  /// One row: the state after it, and what it gives.
  Number next(uint32_t row, uint32_t head, uint32_t key_head, uint32_t column,
              std::vector<Number>& s) const {
    const Recurrence::Shape& shape = test_.shape;
    const uint32_t n = shape.key_dim;
    Number known;
    double magnitude = 0;
    const double own = v[row * v_stride + head * shape.value_dim + column];
    const auto key = [&](uint32_t i) {
      return double{k[row * k_stride + key_head * n + i]} * k_scale;
    };
    for (uint32_t i = 0; i < n; ++i) {
      const Number factor = left(row, head, column, i);
      s[i].error = s[i].error * factor.value + std::abs(s[i].value) * factor.error;
      s[i].value *= factor.value;
      s[i].error += kUnit * std::abs(s[i].value);
      known.value += s[i].value * key(i);
      known.error += s[i].error * std::abs(key(i));
      magnitude += std::abs(s[i].value * key(i));
    }
    known.error += (n + 2) * kUnit * magnitude;
    const size_t channel = size_t{head} * shape.value_dim + column;
    const size_t own_step = shape.decay == Recurrence::Decay::kState ? channel : head;
    Number u;
    if (shape.delta) {
      const double raw = beta[row * beta_stride + head];
      const double b = 1 / (1 + std::exp(-raw));
      u.value = b * (own - known.value);
      u.error = b * known.error +
                2 * kUnit * (9 + 2 * std::abs(raw)) * b * (std::abs(own) + std::abs(known.value));
    } else {
      const Number own_dt = dt(row, own_step);
      u = {own_dt.value * own, (own_dt.error + kUnit * own_dt.value) * std::abs(own)};
    }
    Number y;
    magnitude = 0;
    for (uint32_t i = 0; i < n; ++i) {
      s[i].error += u.error * std::abs(key(i)) + 2 * kUnit * std::abs(u.value * key(i));
      s[i].value += u.value * key(i);
      s[i].error += 2 * kUnit * std::abs(s[i].value);
      const double query = double{q[row * q_stride + key_head * n + i]} * q_scale;
      y.value += s[i].value * query;
      y.error += s[i].error * std::abs(query);
      magnitude += std::abs(s[i].value * query);
    }
    y.error += (n + 2) * kUnit * magnitude;
    if (shape.has_d) {
      y.value += d[own_step] * own;
      y.error += 2 * kUnit * (std::abs(d[own_step] * own) + std::abs(y.value));
    }
    return y;
  }

  const Case& test_;
  const StateCase& states_;
};

Result<PreparedOp> prepare(OpBed& bed, const Case& test) {
  const Recurrence::Shape& shape = test.shape;
  const StateCase states(test.sequences, static_cast<uint32_t>(shape.state_floats()), 9);
  const uint32_t rows = states.n_rows();
  const uint32_t n_keys = shape.n_key_heads * shape.key_dim;
  const uint32_t n_values = shape.n_heads * shape.value_dim;
  Reference reference(test, states);
  const auto fill = [&](std::vector<float>& values, uint32_t& stride, uint32_t n, uint32_t seed) {
    stride = n + seed;
    values = OpBed::normal_floats(size_t{rows} * stride, seed);
  };
  fill(reference.q, reference.q_stride, n_keys, 1);
  fill(reference.k, reference.k_stride, n_keys, 2);
  fill(reference.v, reference.v_stride, n_values, 3);
  const uint32_t n_steps = shape.n_heads * shape.n_steps();
  fill(reference.step, reference.step_stride, n_steps, 4);
  fill(reference.beta, reference.beta_stride, shape.n_heads, 5);
  reference.a = OpBed::normal_floats(shape.a_floats(), 6);
  for (float& a : reference.a) a = -std::abs(a);
  reference.bias = OpBed::normal_floats(n_steps, 7, 3);
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
  if (shape.has_d) {
    PUMICE_TRY(args.d, bed.input(reference.d));
  }
  args.y.stride = n_values + 2;
  PUMICE_TRY(args.y.range, bed.output(size_t{rows} * args.y.stride * 4));
  PUMICE_TRY(const StateCase::Memory memory, states.memory(bed));
  args.items = memory.items;
  args.states = memory.pages;
  PUMICE_TRY(const Recurrence op, Recurrence::plan(bed.pipelines(), shape));

  Expectation y{.name = "y",
                .output = args.y.range,
                .reference = std::vector<double>(size_t{rows} * args.y.stride, NAN),
                .bound = std::vector<double>(size_t{rows} * args.y.stride, 0)};
  Expectation after = states.expectation(memory);
  for (uint32_t seq = 0; seq < states.n_sequences(); ++seq) {
    for (uint32_t head = 0; head < shape.n_heads; ++head) {
      reference.head(seq, head, y, args.y.stride, after);
    }
  }
  return PreparedOp{.record =
                        [=](vk::Recorder& recorder) {
                          states.restore(recorder, memory);
                          op.record(recorder, args);
                        },
                    .expected = {std::move(y), std::move(after)}};
}

}  // namespace

std::vector<OpCase> recurrence_cases() {
  using Shape = Recurrence::Shape;
  using Decay = Recurrence::Decay;
  constexpr std::array<const char*, 3> kDecays = {"", " keys_decay", " states_decay"};
  const Case tests[] = {
      {Shape{.n_heads = 1, .n_key_heads = 1, .key_dim = 1, .value_dim = 1}, {{1, true}}},
      {Shape{.n_heads = 4, .n_key_heads = 2, .key_dim = 32, .value_dim = 16, .has_d = true},
       {{5, true}, {1, false}, {3, false}}},
      {Shape{.n_heads = 3, .n_key_heads = 1, .key_dim = 128, .value_dim = 7, .has_d = true},
       {{1, false}, {2, false}}},
      {Shape{.n_heads = 2, .n_key_heads = 2, .key_dim = 256, .value_dim = 4, .has_d = true},
       {{9, false}}},
      {Shape{.n_heads = 6, .n_key_heads = 2, .key_dim = 32, .value_dim = 32, .delta = true},
       {{1, false}, {7, true}, {2, false}}},
      {Shape{.n_heads = 6,
             .n_key_heads = 2,
             .key_dim = 33,
             .value_dim = 5,
             .by_remainder = true,
             .delta = true},
       {{4, false}, {1, true}}},
      {Shape{.n_heads = 2,
             .n_key_heads = 2,
             .key_dim = 128,
             .value_dim = 9,
             .by_remainder = true,
             .delta = true},
       {{3, false}}},
      {Shape{.n_heads = 3,
             .n_key_heads = 3,
             .key_dim = 32,
             .value_dim = 32,
             .delta = true,
             .decay = Decay::kKey},
       {{1, false}, {6, true}, {2, false}}},
      {Shape{.n_heads = 4,
             .n_key_heads = 2,
             .key_dim = 33,
             .value_dim = 5,
             .delta = true,
             .decay = Decay::kKey},
       {{3, false}}},
      {Shape{.n_heads = 1,
             .n_key_heads = 1,
             .key_dim = 128,
             .value_dim = 9,
             .delta = true,
             .decay = Decay::kKey},
       {{4, true}, {5, false}}},
      {Shape{.n_heads = 1,
             .n_key_heads = 1,
             .key_dim = 16,
             .value_dim = 67,
             .has_d = true,
             .decay = Decay::kState},
       {{1, false}, {6, true}, {2, false}}},
      {Shape{.n_heads = 3,
             .n_key_heads = 1,
             .key_dim = 19,
             .value_dim = 4,
             .has_d = true,
             .decay = Decay::kState},
       {{5, false}}},
  };
  std::vector<OpCase> cases;
  for (const Case& test : tests) {
    const Recurrence::Shape& shape = test.shape;
    cases.push_back(
        {.op = "recurrence",
         .name = fmt::format("heads={}/{} dims={}/{}{}{}{}{} {}", shape.n_heads, shape.n_key_heads,
                             shape.value_dim, shape.key_dim,
                             shape.by_remainder ? " by_remainder" : "", shape.delta ? " delta" : "",
                             shape.has_d ? " d" : "", kDecays.at(static_cast<size_t>(shape.decay)),
                             StateCase::name(test.sequences)),
         .prepare = [test](OpBed& bed) { return prepare(bed, test); }});
  }
  return cases;
}

}  // namespace pumice::ops
