// What the cases of gemm, gemv and linear share: random weights of any type and one matrix product
// with its reference and error bound.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "shaders/common/linear_args.hpp"
#include "shaders/common/math.hpp"
#include "shaders/op_case.hpp"
#include "shaders/quantize_x/quantized_reference.hpp"

namespace pumice::ops {

/// Types that have shaders, in the order of weight_types().
std::vector<const WeightType*> linear_types();

/// A matrix of random file blocks and what they decode to. Nothing here knows a type's fields:
/// blocks of random bytes are kept if the largest weight they hold is of ordinary size.
struct RandomWeights {
  RandomWeights(const WeightType& weight_type, uint32_t rows, uint32_t cols, uint32_t seed);

  WeightSource source() const { return {type, blocks, n_rows, n_cols}; }

  const WeightType* type;
  uint32_t n_rows;
  uint32_t n_cols;
  std::vector<std::byte> blocks;
  std::vector<float> values;  ///< [n_rows][n_cols]
};

/// `n` weight rows over `k` columns applied to `rows` rows of x.
struct LinearShape {
  uint32_t rows = 0;
  uint32_t n = 0;
  uint32_t k = 0;           ///< rounded up to what the type's blocks allow
  bool every_type = false;  ///< also of types for which takes_all_shapes is false
};

/// Whether kernels meet weights of the type in every shape: one type of each kind, by the shape of
/// tiles and what else kernels look at. The others are read through the same derived functions
/// (each type bit for bit in test_weights_gpu) and need only meet each pipeline.
bool takes_all_shapes(const WeightType& type);

/// Device copies of weights, kept alive by whoever records with them.
struct UploadedWeights {
  vk::Arena arena;
  WeightMatrix matrix;
};
Result<std::shared_ptr<UploadedWeights>> upload_weights(OpBed& bed,
                                                        std::span<const WeightSource> sources,
                                                        uint64_t part_bytes);

/// The grid of a type for WeightMatrix; empty if it has none.
Result<vk::BufferRange> upload_grid(OpBed& bed, const WeightType& type);

/// Weight rows of a benchmark that differ; they repeat after that.
constexpr uint32_t kDistinctRows = 256;

/// `n` copies of a matrix of `n_rows` rows, several of them only if that is a multiple of kRowGroup,
/// in which the rows of `weights` come over and over.
Result<std::vector<WeightMatrix>> repeated_matrices(OpBed& bed, const RandomWeights& weights,
                                                    uint32_t n_rows, uint32_t n = 1);

/// Normal x of `rows` rows, `k` columns and NaN between k and the stride, which nothing may read.
struct PaddedInput {
  PaddedInput(uint32_t n_rows, uint32_t n_cols);

  uint32_t rows;
  uint32_t k;
  uint32_t stride;
  std::vector<float> values;
};

/// One element of x · Wᵀ, and what a kernel that computes in `math` may miss it by.
struct LinearElement {
  double value = 0;
  double bound = 0;
};
/// `x_errors`: linear_input_errors of the row of x. `in_blocks`: the weights are integers with a scale
/// for each block of 32 or less.
LinearElement linear_element(const float* x, const float* weights, uint32_t k, Math math,
                             std::span<const double> x_errors, bool in_blocks = false);
/// What making a row of x integers may change its elements by before they are multiplied: nothing in
/// the other forms.
std::vector<double> linear_input_errors(std::span<const float> x, XForm form);

/// Reference and bound of x · Wᵀ in `math` where x is read as `form`, written to columns [first_col,
/// first_col + weights.n_rows) of matrices with `stride` columns.
void linear_reference(const PaddedInput& x, const RandomWeights& weights, Math math, XForm form,
                      uint32_t first_col, uint32_t stride, std::vector<double>& expected,
                      std::vector<double>& bound);

/// Reference and bound of the product of the weights and x as quantised, of which sums over a block
/// are exact: y is [rows][weights.n_rows].
void quantized_linear_reference(const QuantizedReference& x, const RandomWeights& weights,
                                Expectation& y);

/// Plan something that can record LinearArgs on the bed.
using LinearPlanner = std::function<Result<std::function<void(vk::Recorder&, const LinearArgs&)>>(
    OpBed&, const WeightType&)>;

/// One way of computing, tested on its own.
struct LinearVariant {
  std::string name;
  Math math = Math::kF32;
  LinearPlanner planner;
  XForm x = XForm::kFloats;  ///< what the planner makes of x
  /// The case makes x integers, not the planner, so that the bound has the kernel's own rounding alone.
  bool x_is_given = false;
  std::function<bool(const vk::DevicePlan&, const WeightType&)> supported =
      {};                                                          ///< empty: everywhere
  std::function<uint64_t(const LinearShape&)> scratch_bytes = {};  ///< empty: none
};

/// Cases of every type and variant, for the shapes that the type takes.
std::vector<OpCase> linear_cases_of(std::string_view op, std::span<const LinearShape> shapes,
                                    std::span<const LinearVariant> variants);

}  // namespace pumice::ops
