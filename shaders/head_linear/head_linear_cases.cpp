
#include "format/resident_layout.hpp"
#include "shaders/common/linear_cases.hpp"
#include "shaders/head_linear/head_linear.hpp"
#include "shaders/op_case.hpp"

namespace pumice::ops {
namespace {

struct Shape {
  uint32_t rows;
  uint32_t n_heads;
  uint32_t head_rows;
  uint32_t first_row;
  uint32_t n_rows;
  uint32_t n_cols;  ///< rounded up to what the type's blocks allow
  uint32_t n_kept;
  bool transposed = false;
  uint32_t part_groups = 0;  ///< the weights are split after so many row groups; 0: not
  uint32_t n_slices = 1;
  bool every_type = false;  ///< see LinearShape
  bool only_kept = false;   ///< not the products
};

Result<PreparedOp> prepare(OpBed& bed, const WeightType& type, const Shape& shape) {
  const uint32_t k =
      (shape.n_cols + type.block_elements - 1) / type.block_elements * type.block_elements;
  const RandomWeights weights(type, shape.n_heads * shape.head_rows, k, 1);
  const WeightSource source = weights.source();
  const uint64_t part_bytes = shape.part_groups == 0 ? bed.device()->plan().slab_bytes
                                                     : shape.part_groups * row_group_bytes(type, k);
  PUMICE_TRY(const auto uploaded, upload_weights(bed, std::span(&source, 1), part_bytes));
  const uint32_t n_in = shape.transposed ? shape.n_rows : k;
  const uint32_t n_out = shape.transposed ? k : shape.n_rows;
  const uint32_t x_head = n_in + shape.n_kept;
  const uint32_t y_head = n_out + shape.n_kept;
  const PaddedInput x(shape.rows, shape.n_heads * x_head);
  PUMICE_TRY(const vk::BufferRange x_range, bed.input(x.values));
  const uint32_t y_stride = shape.n_heads * y_head + 3;
  const size_t y_floats = size_t{shape.rows - 1} * y_stride + shape.n_heads * y_head;
  PUMICE_TRY(const vk::BufferRange y_range, bed.output(y_floats * 4));
  PUMICE_TRY(const HeadLinear op,
             HeadLinear::plan(bed.pipelines(), type, shape.transposed, shape.n_slices));

  Expectation y{.name = "y", .output = y_range};
  y.reference.assign(y_floats, std::numeric_limits<double>::quiet_NaN());  // not to be written
  y.bound.assign(y_floats, 0);
  std::vector<float> column(n_in);
  for (uint32_t row = 0; row < shape.rows; ++row) {
    for (uint32_t head = 0; head < shape.n_heads; ++head) {
      const float* const from = &x.values[size_t{row} * x.stride + size_t{head} * x_head];
      const size_t to = size_t{row} * y_stride + size_t{head} * y_head;
      const float* const matrix =
          &weights.values[(size_t{head} * shape.head_rows + shape.first_row) * k];
      for (uint32_t i = 0; i < n_out && !shape.only_kept; ++i) {
        for (uint32_t j = 0; j < n_in; ++j) {
          column[j] = shape.transposed ? matrix[size_t{j} * k + i] : matrix[size_t{i} * k + j];
        }
        const LinearElement element = linear_element(from, column.data(), n_in, Math::kF32, {});
        y.reference[to + i] = element.value;
        y.bound[to + i] = element.bound;
      }
      for (uint32_t i = 0; i < shape.n_kept; ++i) y.reference[to + n_out + i] = from[n_in + i];
    }
  }
  return PreparedOp{.record =
                        [=, stride = x.stride](vk::Recorder& recorder) {
                          const HeadLinear::Args args{.weights = uploaded->matrix,
                                                      .n_heads = shape.n_heads,
                                                      .first_row = shape.first_row,
                                                      .n_rows = shape.n_rows,
                                                      .x = x_range,
                                                      .x_stride = stride,
                                                      .x_head_stride = x_head,
                                                      .y = y_range,
                                                      .y_stride = y_stride,
                                                      .rows = shape.rows};
                          shape.only_kept ? op.record_kept(recorder, args)
                                          : op.record(recorder, args);
                        },
                    .expected = {std::move(y)}};
}

}  // namespace

std::vector<OpCase> head_linear_cases() {
  std::vector<OpCase> cases;
  for (const WeightType* type : linear_types()) {
    for (const Shape& shape :
         {Shape{1, 3, 33, 0, 33, 76, 8, false, 0, 1}, Shape{7, 2, 64, 0, 64, 128, 0, false, 1, 4},
          Shape{4, 5, 40, 9, 31, 36, 36, false, 2, 2, true},
          Shape{1, 2, 67, 0, 64, 512, 64, false, 0, 4, true}, Shape{1, 3, 64, 0, 32, 64, 16, true},
          Shape{5, 2, 75, 3, 68, 100, 36, true, 1, 1, true}, Shape{2, 4, 4, 0, 4, 32, 0, true},
          Shape{9, 3, 64, 32, 32, 64, 36, false, 1, 1, false, true}}) {
      if (!shape.every_type && !takes_all_shapes(*type)) continue;
      cases.push_back(
          {.op = "head_linear",
           .name = fmt::format("{} rows={} heads={} n={} of {} from {} k={} kept={}{}{}",
                               type->name, shape.rows, shape.n_heads, shape.n_rows, shape.head_rows,
                               shape.first_row, shape.n_cols, shape.n_kept,
                               shape.transposed ? " transposed" : "",
                               shape.part_groups > 0 ? " parts" : "") +
                   (shape.n_slices == 1 ? "" : fmt::format(" slices={}", shape.n_slices)) +
                   (shape.only_kept ? " only kept" : ""),
           .prepare = [type, shape](OpBed& bed) { return prepare(bed, *type, shape); }});
    }
  }
  return cases;
}

}  // namespace pumice::ops
