#include "shaders/common/linear_cases.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "format/resident_layout.hpp"

namespace pumice::ops {
namespace {

constexpr size_t kDistinctBlocks = 512;

uint32_t round_up(uint32_t value, uint32_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Blocks whose largest weight lies in [2^-6, 4].
std::vector<std::byte> ordinary_blocks(const WeightType& type, std::mt19937& engine) {
  std::vector<std::byte> blocks;
  std::vector<std::byte> block(type.block_bytes);
  std::vector<float> values(type.block_elements);
  while (blocks.size() < kDistinctBlocks * type.block_bytes) {
    for (std::byte& byte : block) byte = static_cast<std::byte>(engine() & 0xFF);
    dequantize(type, block.data(), values.size(), values.data());
    float largest = 0;
    for (const float value : values) {
      largest = std::isfinite(value) ? std::max(largest, std::abs(value))
                                     : std::numeric_limits<float>::infinity();
      if (std::isinf(largest)) break;
    }
    if (largest >= 0x1p-6f && largest <= 4.0f) {
      blocks.insert(blocks.end(), block.begin(), block.end());
    }
  }
  return blocks;
}

/// The most that rounding both factors to halves may change their product: nearest or toward zero,
/// subnormals kept or flushed. Of a block of integers whose largest weight is `largest` (0: of none)
/// scale and offset are rounded too: |scale * q| + |offset| is below three times that, since random
/// blocks hold a q near 0 and one near the largest.
double half_product_error(double x, double w, double largest) {
  constexpr double kUnit = 0x1p-10;
  constexpr double kSmallest = 0x1p-14;
  const auto error = [](double value) {
    return std::max(std::abs(value) * kUnit, std::abs(value) < kSmallest ? kSmallest : 0.0);
  };
  return std::abs(w) * error(x) + std::abs(x) * (error(w) + 3 * largest * kUnit);
}

/// Of the block that begins in column `first`.
double largest_of_block(const float* weights, uint32_t k, uint32_t first) {
  double largest = 0;
  for (uint32_t at = first; at < std::min(first + 32, k); ++at) {
    largest = std::max(largest, std::abs(double{weights[at]}));
  }
  return largest;
}

/// The most that quantising x in blocks changes its value in column `i`: half a quant, and what its
/// number misses by the reciprocal.
double quantization_error(std::span<const float> x, XForm form, size_t i) {
  double largest = 0;
  for (const float value : x.subspan(i / 32 * 32, 32)) {
    largest = std::max(largest, std::abs(double{value}));
  }
  const double most = most_quant(form);
  return (0.501 + most * 0x1p-20) * largest / most;
}

Result<PreparedOp> prepare(OpBed& bed, const WeightType& type, const LinearShape& shape,
                           const LinearVariant& variant) {
  const RandomWeights weights(type, shape.n, shape.k, 1);
  const PaddedInput x(shape.rows, shape.k);
  const WeightSource source = weights.source();
  PUMICE_TRY(const auto uploaded,
             upload_weights(bed, std::span(&source, 1), bed.device()->plan().slab_bytes));
  PUMICE_TRY(const vk::BufferRange y_range, bed.output(uint64_t{shape.rows} * shape.n * 4));
  vk::BufferRange scratch;
  if (variant.scratch_bytes) {
    PUMICE_TRY(scratch, bed.output(variant.scratch_bytes(shape)));
  }
  PUMICE_TRY(const auto record, variant.planner(bed, type));

  Expectation y{.name = "y", .output = y_range, .reference = {}, .bound = {}, .words = {}};
  vk::BufferRange x_range;
  uint32_t x_stride = x.stride;
  if (variant.x_is_given) {
    const QuantizedReference quantized(x.values, x.rows, x.k, x.stride, variant.x);
    quantized_linear_reference(quantized, weights, y);
    PUMICE_TRY(x_range, bed.input(quantized.words));
    x_stride = x.k;
  } else {
    y.reference.resize(size_t{shape.rows} * shape.n);
    y.bound.resize(y.reference.size());
    linear_reference(x, weights, variant.math, variant.x, 0, shape.n, y.reference, y.bound);
    PUMICE_TRY(x_range, bed.input(x.values));
  }
  return PreparedOp{.record =
                        [=, rows = shape.rows, n = shape.n](vk::Recorder& recorder) {
                          record(recorder, {.weights = uploaded->matrix,
                                            .x = x_range,
                                            .x_stride = x_stride,
                                            .y = y_range,
                                            .y_stride = n,
                                            .rows = rows,
                                            .scratch = scratch});
                        },
                    .expected = {y}};
}

}  // namespace

std::vector<const WeightType*> linear_types() {
  std::vector<const WeightType*> types;
  for (const WeightType& type : weight_types()) {
    if (type.has_codec() && type.shaders == type.name) types.push_back(&type);
  }
  return types;
}

bool takes_all_shapes(const WeightType& type) {
  constexpr std::string_view kTypes[] = {"F32",    "F16",  "Q8_0", "Q4_0",  "Q4_1",
                                         "IQ4_NL", "Q4_K", "Q6_K", "IQ2_XS"};
  return std::ranges::find(kTypes, type.name) != std::end(kTypes);
}

RandomWeights::RandomWeights(const WeightType& weight_type, uint32_t rows, uint32_t cols,
                             uint32_t seed)
    : type(&weight_type), n_rows(rows), n_cols(cols) {
  std::mt19937 engine(seed);
  const std::vector<std::byte> distinct = ordinary_blocks(*type, engine);
  const size_t n_blocks = size_t{rows} * cols / type->block_elements;
  blocks.reserve(n_blocks * type->block_bytes);
  for (size_t i = 0; i < n_blocks; ++i) {
    const auto* block = &distinct[engine() % kDistinctBlocks * type->block_bytes];
    blocks.insert(blocks.end(), block, block + type->block_bytes);
  }
  values.resize(size_t{rows} * cols);
  dequantize(*type, blocks.data(), values.size(), values.data());
}

Result<std::shared_ptr<UploadedWeights>> upload_weights(OpBed& bed,
                                                        std::span<const WeightSource> sources,
                                                        uint64_t part_bytes) {
  auto uploaded = std::make_shared<UploadedWeights>(
      UploadedWeights{vk::Arena(bed.device(), vk::MemoryDomain::kDevice, "op case weights",
                                WeightMatrix::resident_bytes(sources)),
                      {}});
  vk::Uploader uploader(bed.device());
  PUMICE_TRY(uploaded->matrix,
             WeightMatrix::upload(uploader, uploaded->arena, sources, part_bytes));
  return uploaded;
}

Result<vk::BufferRange> upload_grid(OpBed& bed, const WeightType& type) {
  if (type.grid.empty()) return vk::BufferRange{};
  return bed.input(type.grid);
}

Result<std::vector<WeightMatrix>> repeated_matrices(OpBed& bed, const RandomWeights& weights,
                                                    uint32_t n_rows, uint32_t n) {
  const WeightType& type = *weights.type;
  const uint64_t matrix_bytes = resident_bytes(type, n_rows, weights.n_cols);
  PUMICE_TRY(const vk::BufferRange pattern,
             bed.input(resident_bytes(type, weights.n_rows, weights.n_cols),
                       [&](std::span<std::byte> target) {
                         repack(type, weights.blocks.data(), weights.n_rows, weights.n_cols, 0,
                                n_row_groups(weights.n_rows), target.data());
                       }));
  PUMICE_TRY(const vk::BufferRange memory, bed.repeat(pattern, n * matrix_bytes));
  PUMICE_TRY(const vk::BufferRange grid, upload_grid(bed, type));
  std::vector<WeightMatrix> matrices;
  for (uint32_t i = 0; i < n; ++i) {
    matrices.push_back({.type = &type,
                        .n_rows = n_rows,
                        .n_cols = weights.n_cols,
                        .parts = {{.range = memory.subrange(i * matrix_bytes, matrix_bytes),
                                   .first_row = 0,
                                   .n_rows = n_rows}},
                        .grid = grid});
  }
  return matrices;
}

PaddedInput::PaddedInput(uint32_t n_rows, uint32_t n_cols)
    : rows(n_rows), k(n_cols), stride(round_up(n_cols, 4) + 4) {
  values = OpBed::normal_floats(size_t{rows - 1} * stride + k, 2);
  for (uint32_t row = 0; row + 1 < rows; ++row) {
    for (uint32_t i = k; i < stride; ++i) {
      values[size_t{row} * stride + i] = std::numeric_limits<float>::quiet_NaN();
    }
  }
}

LinearElement linear_element(const float* x, const float* weights, uint32_t k, Math math,
                             std::span<const double> x_errors, bool in_blocks) {
  // A sum of k products, each addition and product rounded once to 24 bits, in any order: the error
  // is below lambda * sqrt(k + 1) * 2^-24 * sum |x||w| with probability 1 - 2 exp(-lambda^2 / 2)
  // per operation (Higham and Mary, "A new approach to probabilistic rounding error analysis",
  // 2019). The worst case, k + 1 in place of the root, would let a missing column of 4096 pass.
  constexpr double kLambda = 6;
  const bool halves = math == Math::kF16;
  // Matrix cores may cut the bits of aligned products off where an addition would round.
  const double relative = kLambda * std::sqrt(k + 1.0) * (halves ? 0x1p-22 : 0x1p-24);
  double sum = 0;
  double magnitude = 0;
  double input_error_squares = 0;
  double largest = 0;
  for (uint32_t i = 0; i < k; ++i) {
    const double product = double{x[i]} * weights[i];
    sum += product;
    magnitude += std::abs(product);
    double error = 0;
    if (halves && in_blocks && i % 32 == 0) largest = largest_of_block(weights, k, i);
    if (halves) error = half_product_error(x[i], weights[i], largest);
    if (!halves && !x_errors.empty()) error = x_errors[i] * weights[i];
    input_error_squares += error * error;
  }
  // Independent errors of at most c_i: their sum is below lambda * sqrt(sum c_i^2) (Hoeffding).
  return {sum, relative * magnitude + kLambda * std::sqrt(input_error_squares)};
}

std::vector<double> linear_input_errors(std::span<const float> x, XForm form) {
  std::vector<double> errors(x.size());
  if (form != XForm::kInt8 && form != XForm::kPlanes) return errors;
  for (size_t i = 0; i < x.size(); ++i) errors[i] = quantization_error(x, form, i);
  return errors;
}

void linear_reference(const PaddedInput& x, const RandomWeights& weights, Math math, XForm form,
                      uint32_t first_col, uint32_t stride, std::vector<double>& expected,
                      std::vector<double>& bound) {
  for (uint32_t row = 0; row < x.rows; ++row) {
    const float* x_row = &x.values[size_t{row} * x.stride];
    const std::vector<double> x_errors = linear_input_errors({x_row, x.k}, form);
    for (uint32_t n = 0; n < weights.n_rows; ++n) {
      const LinearElement element = linear_element(x_row, &weights.values[size_t{n} * x.k], x.k,
                                                   math, x_errors, weights.type->has_integers());
      const size_t at = size_t{row} * stride + first_col + n;
      expected[at] = element.value;
      bound[at] = element.bound;
    }
  }
}

/// Per block of 32 columns a kernel rounds a handful of terms, scale * sum(q p) and offset * sum(p),
/// and then adds the block to the sum: at most n_blocks + 6 roundings on the way of each term, 2^-24
/// each, which add like errors of random sign (see linear_element). A weight is scale * q + offset,
/// terms that may cancel; but a block of random weights holds one whose q is near 0 and one whose q is
/// near the largest, so that |offset| is about the largest |w| at most and |scale * q| at most twice
/// that.
void quantized_linear_reference(const QuantizedReference& x, const RandomWeights& weights,
                                Expectation& y) {
  constexpr double kLambda = 6;
  constexpr uint32_t kBlock = QuantizedX::kBlockCols;
  const uint32_t n_blocks = weights.n_cols / kBlock;
  const double relative = kLambda * std::sqrt(n_blocks + 6.0) * 0x1p-24;
  for (uint32_t row = 0; row < x.n_rows; ++row) {
    for (uint32_t n = 0; n < weights.n_rows; ++n) {
      double sum = 0;
      double magnitude = 0;
      for (uint32_t block = 0; block < n_blocks; ++block) {
        double largest_weight = 0;
        double x_magnitude = 0;
        for (uint32_t col = block * kBlock; col < (block + 1) * kBlock; ++col) {
          const double w = weights.values[size_t{n} * weights.n_cols + col];
          const double value = x.value(row, col);
          sum += w * value;
          x_magnitude += std::abs(value);
          largest_weight = std::max(largest_weight, std::abs(w));
        }
        magnitude += 3 * largest_weight * x_magnitude;
      }
      y.reference.push_back(sum);
      y.bound.push_back(relative * magnitude);
    }
  }
}

std::vector<OpCase> linear_cases_of(std::string_view op, std::span<const LinearShape> shapes,
                                    std::span<const LinearVariant> variants) {
  std::vector<OpCase> cases;
  for (const WeightType* type : linear_types()) {
    for (const LinearVariant& variant : variants) {
      for (LinearShape shape : shapes) {
        if (!shape.every_type && !takes_all_shapes(*type)) continue;
        shape.k = round_up(shape.k, type->block_elements);
        cases.push_back({.op = std::string(op),
                         .name = fmt::format("{} {} rows={} n={} k={}", type->name, variant.name,
                                             shape.rows, shape.n, shape.k),
                         .prepare = [=](OpBed& bed) { return prepare(bed, *type, shape, variant); },
                         .supported =
                             [=](const vk::DevicePlan& plan) {
                               return !variant.supported || variant.supported(plan, *type);
                             }});
      }
    }
  }
  return cases;
}

}  // namespace pumice::ops
