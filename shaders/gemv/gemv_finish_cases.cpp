// Cases of what gemv's kernels for GPUs do besides with their sums (LinearFinish).
#include <algorithm>
#include <cmath>
#include <iterator>

#include "shaders/common/activation_reference.hpp"
#include "shaders/common/linear_cases.hpp"
#include "shaders/gemv/gemv_cases.hpp"

namespace pumice::ops {
namespace {

constexpr double kRounding = 0x1p-24;
constexpr uint32_t kSquares = LinearFinish::kSquares;

enum class FinishKind { kAdded, kScaled, kGated, kScaledAndGated };
constexpr const char* kFinishNames[] = {"added", "scaled", "gated", "scaled and gated"};

struct FinishCase {
  const WeightType* type;
  GemvKernel kernel;
  FinishKind kind;
  uint32_t rows, n, k;  ///< n: outputs
  uint32_t splits = 1;
  ActivationKind activation = ActivationKind::kSilu;

  bool gates() const { return kind == FinishKind::kGated || kind == FinishKind::kScaledAndGated; }
  bool scales() const { return kind == FinishKind::kScaled || kind == FinishKind::kScaledAndGated; }
  uint32_t n_weight_rows() const { return gates() ? 2 * n : n; }
};

/// What a product is, before anything is done with it.
struct Sums {
  std::vector<double> value;
  std::vector<double> bound;

  LinearElement at(size_t i) const { return {value[i], bound[i]}; }
};

/// A norm of x: squares, and what they make of a sum.
struct Scales {
  static constexpr float kEps = 1e-3f;

  Scales(uint32_t rows, uint32_t k) : n(LinearFinish::n_squares(k)), n_columns(k) {
    squares = OpBed::normal_floats(size_t{rows} * n, 5, 8.0f);
    for (float& each : squares) each = each * each + 1.0f;
  }

  LinearElement scaled(const LinearElement& sum, uint32_t row) const {
    double total = 0;
    for (uint32_t i = 0; i < n; ++i) total += squares[size_t{row} * n + i];
    const double scale = 1 / std::sqrt(total / n_columns + kEps);
    // Additions of positive numbers, halved by the root; a division, the root and a product of 2.5
    // units each at most.
    const double relative = (n / 2.0 + 16) * kRounding;
    return {sum.value * scale, (sum.bound + relative * std::abs(sum.value)) * scale};
  }

  uint32_t n;
  uint32_t n_columns;
  std::vector<float> squares;
};

LinearElement gated(ActivationKind kind, const LinearElement& gate, const LinearElement& up) {
  const auto activation = static_cast<uint32_t>(kind);
  const double value = activation_value(activation, gate.value);
  constexpr double kSteepest = 1.2;  // of any of them
  const double missed = activation_bound(activation, gate.value) + kSteepest * gate.bound;
  return {value * up.value, missed * (std::abs(up.value) + up.bound) +
                                std::abs(value) * (up.bound + kRounding * std::abs(up.value)) +
                                0x1p-126};
}

Expectation expectation(const char* name, const vk::BufferRange& output) {
  return {.name = name, .output = output, .reference = {}, .bound = {}, .words = {}};
}

void expect(Expectation& e, const LinearElement& element) {
  e.reference.push_back(element.value);
  e.bound.push_back(element.bound);
}

/// y, what it is times the norm's weights, and its squares.
std::vector<Expectation> added(const FinishCase& c, const Sums& sums, const vk::BufferRange& y,
                               const LinearFinish::Added& to, const std::vector<float>& stream,
                               const std::vector<float>& norm) {
  std::vector<Expectation> e = {expectation("y", y), expectation("normed", to.normed),
                                expectation("squares", to.squares)};
  for (uint32_t row = 0; row < c.rows; ++row) {
    LinearElement squares;
    for (uint32_t col = 0; col < c.n; ++col) {
      const size_t at = size_t{row} * c.n + col;
      const double value = stream[at] + sums.value[at];
      const double bound = sums.bound[at] + kRounding * std::abs(value);
      expect(e[0], {value, bound});
      expect(e[1],
             {value * norm[col], (bound + kRounding * std::abs(value)) * std::abs(norm[col])});
      squares.value += value * value;
      squares.bound += (2 * std::abs(value) + bound) * bound + kSquares * kRounding * value * value;
      if (col % kSquares == kSquares - 1 || col + 1 == c.n) {
        expect(e[2], squares);
        squares = {};
      }
    }
  }
  return e;
}

Result<PreparedOp> prepare_finish(OpBed& bed, const FinishCase& c) {
  const RandomWeights weights(*c.type, c.n_weight_rows(), c.k, 1);
  const PaddedInput x(c.rows, c.k);
  const WeightSource source = weights.source();
  PUMICE_TRY(const auto uploaded,
             upload_weights(bed, {&source, 1}, bed.device()->plan().slab_bytes));
  PUMICE_TRY(const vk::BufferRange x_range, bed.input(x.values));
  PUMICE_TRY(const vk::BufferRange y, bed.output(uint64_t{c.rows} * c.n * 4));
  PUMICE_TRY(Gemv op, Gemv::plan(bed.pipelines(), *c.type, c.kernel, Gemv::kMaxRows));
  PUMICE_TRY_STATUS(op.force_splits(c.splits));
  vk::BufferRange scratch;
  if (c.splits > 1) {
    PUMICE_TRY(scratch, bed.output(op.scratch_bytes(uploaded->matrix, c.rows)));
  }

  Sums sums;
  sums.value.resize(size_t{c.rows} * weights.n_rows);
  sums.bound.resize(sums.value.size());
  linear_reference(x, weights, Math::kF32, XForm::kFloats, 0, weights.n_rows, sums.value,
                   sums.bound);

  LinearFinish finish;
  const Scales scales(c.rows, c.k);
  if (c.scales()) {
    PUMICE_TRY(const vk::BufferRange squares, bed.input(scales.squares));
    finish.scaled = {.squares = squares, .eps = Scales::kEps};
  }
  if (c.gates()) finish.gated = c.activation;
  std::vector<Expectation> expected;
  vk::BufferRange pristine;
  if (c.kind == FinishKind::kAdded) {
    const auto stream = OpBed::normal_floats(size_t{c.rows} * c.n, 3, 10.0f);
    const auto norm = OpBed::normal_floats(c.n, 4);
    LinearFinish::Added to;
    PUMICE_TRY(pristine, bed.input(stream));
    PUMICE_TRY(to.norm, bed.input(norm));
    PUMICE_TRY(to.normed, bed.output(y.size_bytes));
    PUMICE_TRY(to.squares, bed.output(uint64_t{c.rows} * LinearFinish::n_squares(c.n) * 4));
    finish.added = to;
    expected = added(c, sums, y, to, stream, norm);
  } else {
    expected.push_back(expectation("y", y));
    for (uint32_t row = 0; row < c.rows; ++row) {
      const auto sum = [&](uint32_t col) {
        const LinearElement plain = sums.at(size_t{row} * weights.n_rows + col);
        return c.scales() ? scales.scaled(plain, row) : plain;
      };
      for (uint32_t col = 0; col < c.n; ++col) {
        expect(expected[0], c.gates() ? gated(c.activation, sum(col), sum(c.n + col)) : sum(col));
      }
    }
  }
  return PreparedOp{.record =
                        [=, x_stride = x.stride](vk::Recorder& recorder) {
                          if (!pristine.empty()) recorder.copy(pristine, y);
                          op.record(recorder, {.weights = uploaded->matrix,
                                               .x = x_range,
                                               .x_stride = x_stride,
                                               .y = y,
                                               .y_stride = c.n,
                                               .rows = c.rows,
                                               .scratch = scratch,
                                               .finish = finish});
                        },
                    .expected = std::move(expected)};
}

void add_case(std::vector<OpCase>& cases, FinishCase c) {
  c.k = (c.k + c.type->block_elements - 1) / c.type->block_elements * c.type->block_elements;
  std::string name =
      fmt::format("{} {} {} rows={} n={} k={}", c.type->name,
                  c.kernel == GemvKernel::kPortable ? "portable" : gemv_kernel_name(c.kernel),
                  kFinishNames[static_cast<size_t>(c.kind)], c.rows, c.n, c.k);
  if (c.splits > 1) name += fmt::format(" splits={}", c.splits);
  if (c.activation != ActivationKind::kSilu) {
    name += fmt::format(" activation {}", static_cast<uint32_t>(c.activation));
  }
  // Lanes of few have eight columns each, for which drivers compile long, and no row has them finish.
  const auto runs = [c](const vk::DevicePlan& plan) {
    return gemv_runs(plan, c.kernel, *c.type) &&
           (c.kernel != GemvKernel::kBroadcast || plan.subgroup_size >= 8);
  };
  cases.push_back({.op = "gemv",
                   .name = std::move(name),
                   .prepare = [c](OpBed& bed) { return prepare_finish(bed, c); },
                   .supported = runs});
}

}  // namespace

std::vector<OpCase> gemv_finish_cases() {
  using enum FinishKind;
  struct Shape {
    FinishKind kind;
    uint32_t rows, n, k;
    bool every_type = false;
  };
  constexpr Shape kShapes[] = {{kAdded, 1, 1, 32},
                               {kAdded, 1, 100, 4096},
                               {kAdded, 2, 65, 172},
                               {kAdded, 3, 33, 300, true},
                               {kAdded, 5, 96, 684},
                               {kAdded, 7, 31, 256},
                               {kAdded, 8, 257, 512},
                               {kScaled, 1, 7, 32},
                               {kScaled, 1, 70, 2816},
                               {kScaled, 2, 33, 1100},
                               {kScaled, 4, 40, 300, true},
                               {kScaled, 6, 65, 5632},
                               {kScaled, 8, 100, 684},
                               {kGated, 1, 32, 172},
                               {kGated, 2, 64, 32},
                               {kGated, 3, 96, 512, true},
                               {kScaledAndGated, 1, 64, 2816},
                               {kScaledAndGated, 5, 32, 684},
                               {kScaledAndGated, 8, 96, 300}};
  std::vector<OpCase> cases;
  for (const GemvKernel kernel :
       {GemvKernel::kPortable, GemvKernel::kSubgroup, GemvKernel::kBroadcast}) {
    for (const WeightType* type : linear_types()) {
      for (const Shape& s : kShapes) {
        // What is done with sums is the same of all types, and a kernel takes a driver seconds.
        const bool of_every_type = s.every_type && kernel == GemvKernel::kSubgroup;
        if (!of_every_type && !takes_all_shapes(*type)) continue;
        add_case(cases, {type, kernel, s.kind, s.rows, s.n, s.k});
      }
    }
    for (const auto activation : {ActivationKind::kGelu, ActivationKind::kGeluTanh,
                                  ActivationKind::kSigmoid, ActivationKind::kRelu}) {
      add_case(cases, {&weight_type("Q8_0"), kernel, kGated, 2, 64, 320, 1, activation});
    }
  }
  // K is split: sums are finished once they are whole, but for scales.
  for (const char* type : {"F16", "Q4_K"}) {
    for (const auto& [rows, n] : {std::pair(1u, 65u), {3u, 100u}, {8u, 33u}}) {
      for (const FinishKind kind : {kAdded, kScaled}) {
        add_case(cases, {&weight_type(type), GemvKernel::kSubgroup, kind, rows, n, 1280, 4});
      }
    }
  }
  return cases;
}

}  // namespace pumice::ops
