#include <algorithm>
#include <bit>
#include <cmath>

#include "shaders/common/activation_reference.hpp"
#include "shaders/elementwise/elementwise.hpp"
#include "shaders/op_case.hpp"

namespace pumice::ops {
namespace {

using Kind = Elementwise::Kind;
using enum Elementwise::Kind;

enum class Target { kApart, kA, kB };  ///< where y lies

struct Shape {
  uint32_t rows;
  uint32_t n;
  uint32_t padding;  ///< of all strides, in floats
  bool gather = false;
  Target target = Target::kApart;
  float factor = 1;
  uint32_t b_group = 1;
  uint32_t a_group = 0;
  uint32_t y_group = 1;
};

struct NamedKind {
  Kind kind;
  const char* name;
  bool has_b;
};
constexpr NamedKind kKinds[] = {{kAdd, "add", true},
                                {kMul, "mul", true},
                                {kAddBias, "bias", true},
                                {kSilu, "silu", false},
                                {kGelu, "gelu", false},
                                {kGeluTanh, "gelu_tanh", false},
                                {kSigmoid, "sigmoid", false},
                                {kRelu, "relu", false},
                                {kScale, "scale", false},
                                {kSoftCap, "soft_cap", false},
                                {kAtMost, "at_most", false},
                                {kWithin, "within", false},
                                {kCopy, "copy", false},
                                {kXielu, "xielu", false},
                                {kMulGroups, "mul_groups", true},
                                {kCopyGroups, "copy_groups", false}};
constexpr Elementwise::Xielu kXieluConstants{.alpha_p = 0.8f, .alpha_n = 1.1f, .eps = -1e-6f};

struct Element {
  double value;
  double bound;
};

/// Sums and products round once; what is subnormal may be flushed.
Element element(Kind kind, float a, float b, float factor) {
  const auto rounded = [](double value) {
    return Element{value, 0x1p-24 * std::abs(value) + 0x1p-126};
  };
  const auto activated = [&](uint32_t activation) {
    return Element{activation_value(activation, a), activation_bound(activation, a)};
  };
  switch (kind) {
    case kAdd:
    case kAddBias:
      return rounded(double{a} + b);
    case kMul:
    case kMulGroups:
      return rounded(double{a} * b);
    case kScale:
      return rounded(double{a} * factor);
    case kSilu:
      return activated(ACTIVATION_SILU);
    case kGelu:
      return activated(ACTIVATION_GELU);
    case kGeluTanh:
      return activated(ACTIVATION_GELU_TANH);
    case kSigmoid:
      return activated(ACTIVATION_SIGMOID);
    case kRelu:
      return activated(ACTIVATION_RELU);
    case kAtMost:
      return {std::min(a, factor), 0};
    case kWithin:
      return {std::clamp(a, -factor, factor), 0};
    case kSoftCap: {
      // Two divisions of 2.5 units, three or four roundings, and what the exponential's error of
      // 3 + 2·2z units and its argument's change in (1 - e) / (1 + e), from z = 0.6 on.
      const double value = factor * std::tanh(double{a} / factor);
      return {value, 16 * 0x1p-23 * std::abs(value) + 0x1p-126 * (1 + factor)};
    }
    case kXielu: {
      if (a > 0) {
        const double curved = kXieluConstants.alpha_p * double{a} * a;
        return {curved + factor * double{a}, 4 * 0x1p-24 * (curved + std::abs(factor * double{a}))};
      }
      // The exponential's 3 + 2|a| units, of 1 at most; the others are roundings.
      const double e = std::exp(std::min(double{a}, double{kXieluConstants.eps}));
      const double value = kXieluConstants.alpha_n * (e - 1 - a) + factor * double{a};
      const double exponential = e * (3 + 2 * std::abs(double{a})) + 1 + 2 * std::abs(double{a});
      return {value,
              0x1p-23 * (kXieluConstants.alpha_n * exponential + 2 * std::abs(factor * double{a})) +
                  0x1p-126};
    }
    case kCopy:
    case kCopyGroups:
      break;
  }
  return {a, 0};
}

Result<PreparedOp> prepare(OpBed& bed, const NamedKind& named, const Shape& shape) {
  const Kind kind = named.kind;
  const uint32_t in_rows = shape.gather ? shape.rows + 2 : shape.rows;
  const bool picks = kind == kCopyGroups;
  const uint32_t stride =
      (picks ? shape.n / shape.y_group * shape.a_group : shape.n) + shape.padding;
  // Inputs end where their last row does, so that reading on is noticed as much as it can be.
  const size_t n_floats =
      size_t{in_rows - 1} * stride +
      (picks ? (shape.n / shape.y_group - 1) * shape.a_group + shape.y_group : shape.n);
  auto a = OpBed::normal_floats(n_floats, 1, kind == kSoftCap ? 2 * shape.factor : 3);
  // b has the rows of a, but of groups one number each.
  const uint32_t b_columns = shape.n / shape.b_group;
  const uint32_t b_stride = kind == kMulGroups ? b_columns + shape.padding : stride;
  const auto b = OpBed::normal_floats(
      kind == kAddBias ? shape.n : size_t{in_rows - 1} * b_stride + b_columns, 2);
  const float special[] = {0.0f,   -0.0f,  1e-30f, -1e-6f, 1e4f,  -1e4f,
                           -13.0f, -88.8f, 0.1f,   -0.6f,  1e37f, -1e37f};
  for (size_t i = 0; i < std::size(special) && i < shape.n; ++i) a[i] = special[i];
  if (kind == kSoftCap && shape.n > 16) {  // about where one formula takes over from the other
    for (size_t i = 12; i < 16; ++i)
      a[i] = shape.factor * (0.59f + 0.005f * static_cast<float>(i - 12));
  }
  if (kind == kXielu) {  // squares are finite
    for (float& x : a) x = std::clamp(x, -1e15f, 1e15f);
  }
  if (kind == kCopy || picks) a[0] = std::bit_cast<float>(0x7FC12345u);  // a NaN is copied too
  std::vector<uint32_t> row_index(shape.rows);
  for (uint32_t row = 0; row < shape.rows; ++row) row_index[row] = in_rows - 1 - row;

  Elementwise::Args args{.a_stride = stride,
                         .b_stride = kind == kAddBias ? 0 : b_stride,
                         .b_group = shape.b_group,
                         .a_group = shape.a_group,
                         .y_group = shape.y_group,
                         .y_stride = stride,
                         .rows = shape.rows,
                         .n = shape.n,
                         .factor = shape.factor,
                         .xielu = kXieluConstants};
  const std::vector<float>& own = shape.target == Target::kB ? b : a;
  PUMICE_TRY(const vk::BufferRange pristine, bed.input(own));
  const size_t y_floats = size_t{shape.rows - 1} * stride + shape.n;
  PUMICE_TRY(args.y, bed.output(y_floats * 4));
  args.a = args.b = args.y;
  if (shape.target != Target::kA) {
    PUMICE_TRY(args.a, bed.input(a));
  }
  if (shape.target != Target::kB) {
    PUMICE_TRY(args.b, bed.input(b));
  }
  PUMICE_TRY(args.row_index, bed.input_if(shape.gather, row_index));
  PUMICE_TRY(const Elementwise op, Elementwise::plan(bed.pipelines(), kind));

  // Between rows of y lies what lay there before: padding of an input, or nothing written.
  constexpr uint32_t kUnwritten = 0xFFFFFFFFu;
  const bool in_place = shape.target != Target::kApart;
  Expectation y{.name = "y", .output = args.y};
  for (size_t i = 0; i < y_floats; ++i) {
    const size_t row = i / stride;
    const size_t column = i % stride;
    if (column >= shape.n) {
      const float kept = in_place ? own[i] : std::bit_cast<float>(kUnwritten);
      y.words.push_back(std::bit_cast<uint32_t>(kept));
      y.reference.push_back(kept);
      y.bound.push_back(0);
      continue;
    }
    const size_t in_row = shape.gather ? row_index[row] : row;
    const size_t in_column =
        picks ? column / shape.y_group * shape.a_group + column % shape.y_group : column;
    const size_t at = in_row * stride + in_column;
    const size_t b_at =
        picks ? 0 : (kind == kAddBias ? 0 : in_row * b_stride) + column / shape.b_group;
    const Element x = element(kind, a[at], b[b_at], shape.factor);
    y.words.push_back(std::bit_cast<uint32_t>(a[at]));
    y.reference.push_back(x.value);
    y.bound.push_back(x.bound);
  }
  if (kind == kCopy || picks) {
    y.reference.clear();
    y.bound.clear();
  } else {
    y.words.clear();
  }
  return PreparedOp{.record =
                        [=](vk::Recorder& recorder) {
                          if (in_place) recorder.copy(pristine, args.y);
                          op.record(recorder, args);
                        },
                    .expected = {std::move(y)}};
}

}  // namespace

std::vector<OpCase> elementwise_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](const NamedKind& kind, const Shape& shape) {
    constexpr const char* kTargets[] = {"", " in a", " in b"};
    cases.push_back(
        {.op = "elementwise",
         .name = fmt::format("{} rows={} n={} padding={}{}{}", kind.name, shape.rows, shape.n,
                             shape.padding, shape.gather ? " gather" : "",
                             kTargets[static_cast<size_t>(shape.target)]) +
                 (shape.factor == 1 ? "" : fmt::format(" factor={}", shape.factor)) +
                 (shape.b_group == 1 ? "" : fmt::format(" group={}", shape.b_group)) +
                 (shape.a_group == 0 ? "" : fmt::format(" {} of {}", shape.y_group, shape.a_group)),
         .prepare = [kind, shape](OpBed& bed) { return prepare(bed, kind, shape); }});
  };
  for (const NamedKind& kind : kKinds) {
    const bool uses_factor = kind.kind == kScale || kind.kind == kSoftCap;
    const bool is_limit = kind.kind == kAtMost || kind.kind == kWithin;
    const float factor = uses_factor ? 30.5f : kind.kind == kXielu ? 0.5f : is_limit ? 0.6f : 1;
    if (kind.kind == kCopyGroups) {
      add(kind, {.rows = 3, .n = 12, .padding = 3, .a_group = 8, .y_group = 3});
      add(kind, {.rows = 4, .n = 256, .padding = 4, .gather = true, .a_group = 128, .y_group = 64});
      add(kind, {.rows = 2, .n = 1028, .padding = 0, .a_group = 8, .y_group = 4});
      continue;
    }
    if (kind.kind == kMulGroups) {
      add(kind, {3, 257, 2, false, Target::kApart, 1, 257});
      add(kind, {5, 260, 8, true, Target::kApart, 1, 20});
      add(kind, {4, 63, 1, false, Target::kA, 1, 9});
      add(kind, {2, 1024, 0, false, Target::kA, 1, 64});
      add(kind, {2, 30, 2, false, Target::kApart, 1, 6});
      continue;
    }
    add(kind, {1, 1, 0, false, Target::kApart, factor});
    add(kind, {3, 257, 2, false, Target::kApart, factor});
    add(kind, {5, 260, 8, true, Target::kApart, factor});
    add(kind, {4, 63, 1, true, Target::kApart, factor});
    add(kind, {7, 1028, 4, false, Target::kA, factor});
    add(kind, {2, 61, 3, false, Target::kA, factor});
    if (kind.has_b && kind.kind != kAddBias) add(kind, {3, 64, 0, false, Target::kB});
    if (uses_factor) add(kind, {2, 300, 0, false, Target::kApart, 0.0625f});
  }
  return cases;
}

}  // namespace pumice::ops
