#include <algorithm>
#include <array>
#include <iterator>
#include <optional>

#include "shaders/common/linear_cases.hpp"
#include "shaders/gemv/gemv_cases.hpp"
#include "shaders/quantize_x/quantized_reference.hpp"
#include "shaders/spirv.hpp"

namespace pumice::ops {

bool gemv_runs(const vk::DevicePlan& plan, GemvKernel kernel, const WeightType& type) {
  const bool old_cpu_driver =
      plan.driver.name == "mesa_llvmpipe" && plan.driver.version < std::array{25u, 0u, 0u};
  const bool of_subgroups = kernel == GemvKernel::kSubgroup || kernel == GemvKernel::kPlanes;
  const bool compiles_long = of_subgroups && old_cpu_driver && type.block_elements >= 256;
  return gemv_kernel_supported(plan, kernel) && !compiles_long &&
         find_spirv(linear_module_name("gemv", type, gemv_kernel_name(kernel))).ok();
}

namespace {

uint64_t partial_sums_bytes(const LinearShape& shape, uint32_t splits) {
  return splits > 1 ? uint64_t{splits} * shape.rows * shape.n * 4 : 0;
}

LinearVariant variant_of(GemvKernel kernel, uint32_t splits) {
  LinearVariant variant;
  variant.name = kernel == GemvKernel::kPortable ? "portable" : gemv_kernel_name(kernel);
  if (splits > 1) variant.name += fmt::format(" splits={}", splits);
  variant.supported = [=](const vk::DevicePlan& plan, const WeightType& type) {
    return gemv_runs(plan, kernel, type);
  };
  if (kernel == GemvKernel::kPlanes) variant.x = XForm::kPlanes;
  const auto x_bytes = [form = variant.x](uint64_t rows, uint32_t k) {
    return x_form_bytes(form, rows, k);
  };
  if (splits > 1 || variant.x != XForm::kFloats) {
    variant.scratch_bytes = [=](const LinearShape& shape) {
      return x_bytes(shape.rows, shape.k) + partial_sums_bytes(shape, splits);
    };
  }
  variant.planner = [=, form = variant.x](OpBed& bed, const WeightType& type)
      -> Result<std::function<void(vk::Recorder&, const LinearArgs&)>> {
    PUMICE_TRY(Gemv op, Gemv::plan(bed.pipelines(), type, kernel));
    PUMICE_TRY_STATUS(op.force_splits(splits));
    std::optional<QuantizeX> quantize_x;
    if (form != XForm::kFloats) {
      PUMICE_TRY(quantize_x, QuantizeX::plan(bed.pipelines(), form));
    }
    return std::function([=](vk::Recorder& recorder, const LinearArgs& args) {
      const uint32_t k = args.weights.n_cols;
      LinearArgs placed = args;
      if (quantize_x) {
        quantize_x->record(
            recorder,
            {.x = args.x, .x_stride = args.x_stride, .rows = args.rows, .k = k, .y = args.scratch});
        placed.x = args.scratch;
      }
      if (splits > 1) placed.scratch = args.scratch.from(x_bytes(args.rows, k));
      op.record(recorder, placed);
    });
  };
  return variant;
}

/// Of x that is in planes already, so that the bound has the kernel's own rounding alone.
Result<PreparedOp> prepare_planes(OpBed& bed, const WeightType& type, const LinearShape& shape,
                                  uint32_t splits) {
  const RandomWeights weights(type, shape.n, shape.k, 1);
  const PaddedInput input(shape.rows, shape.k);
  const QuantizedReference quantized(input.values, shape.rows, shape.k, input.stride,
                                     XForm::kPlanes);
  const WeightSource source = weights.source();
  PUMICE_TRY(const auto uploaded,
             upload_weights(bed, std::span(&source, 1), bed.device()->plan().slab_bytes));
  PUMICE_TRY(const vk::BufferRange x, bed.input(quantized.words));
  PUMICE_TRY(const vk::BufferRange y_range, bed.output(uint64_t{shape.rows} * shape.n * 4));
  vk::BufferRange scratch;
  if (splits > 1) {
    PUMICE_TRY(scratch, bed.output(partial_sums_bytes(shape, splits)));
  }
  PUMICE_TRY(Gemv op, Gemv::plan(bed.pipelines(), type, GemvKernel::kPlanes));
  PUMICE_TRY_STATUS(op.force_splits(splits));
  Expectation y{.name = "y", .output = y_range, .reference = {}, .bound = {}, .words = {}};
  quantized_linear_reference(quantized, weights, y);
  return PreparedOp{.record =
                        [=](vk::Recorder& recorder) {
                          op.record(recorder, {.weights = uploaded->matrix,
                                               .x = x,
                                               .x_stride = shape.k,
                                               .y = y_range,
                                               .y_stride = shape.n,
                                               .rows = shape.rows,
                                               .scratch = scratch});
                        },
                    .expected = {std::move(y)}};
}

std::vector<OpCase> planes_cases() {
  constexpr LinearShape kShapes[] = {
      {1, 1, 32},    {1, 512, 4096},      {1, 65, 160, true}, {2, 7, 96},    {3, 33, 2816},
      {4, 100, 512}, {5, 32, 1280, true}, {6, 33, 288},       {7, 100, 512}, {8, 257, 800, true}};
  std::vector<OpCase> cases;
  for (const WeightType* type : linear_types()) {
    if (!find_spirv(linear_module_name("gemv", *type, "planes")).ok()) continue;
    for (const uint32_t splits : {1u, 4u}) {
      for (LinearShape shape : kShapes) {
        if (!shape.every_type && (!takes_all_shapes(*type) || splits > 1)) continue;
        shape.k =
            (shape.k + type->block_elements - 1) / type->block_elements * type->block_elements;
        cases.push_back(
            {.op = "gemv",
             .name = fmt::format("{} of planes splits={} rows={} n={} k={}", type->name, splits,
                                 shape.rows, shape.n, shape.k),
             .prepare = [=](OpBed& bed) { return prepare_planes(bed, *type, shape, splits); },
             .supported =
                 [=](const vk::DevicePlan& plan) {
                   return gemv_runs(plan, GemvKernel::kPlanes, *type);
                 }});
      }
    }
  }
  return cases;
}

}  // namespace

bool PlanesProbe::supported(const vk::DevicePlan& plan) {
  return gemv_runs(plan, GemvKernel::kPlanes, weight_type("Q8_0"));
}

Result<PlanesProbe> PlanesProbe::make(OpBed& bed, uint32_t rows, uint32_t k) {
  constexpr uint32_t kOutputs = 40;
  PlanesProbe probe;
  probe.rows = rows;
  probe.weights = std::make_shared<RandomWeights>(weight_type("Q8_0"), kOutputs, k, 5);
  const WeightSource source = probe.weights->source();
  PUMICE_TRY(probe.uploaded, upload_weights(bed, {&source, 1}, bed.device()->plan().slab_bytes));
  PUMICE_TRY(probe.gemv, Gemv::plan(bed.pipelines(), *probe.weights->type, GemvKernel::kPlanes));
  PUMICE_TRY_STATUS(probe.gemv.force_splits(1));
  PUMICE_TRY(probe.planes, bed.output(PlanesOfX::size_bytes(rows, k)));
  PUMICE_TRY(probe.y, bed.output(uint64_t{rows} * kOutputs * 4));
  return probe;
}

void PlanesProbe::record(vk::Recorder& recorder) const {
  gemv.record(recorder, {.weights = uploaded->matrix,
                         .x = planes,
                         .x_stride = weights->n_cols,
                         .y = y,
                         .y_stride = weights->n_rows,
                         .rows = rows});
}

Expectation PlanesProbe::expectation(std::span<const double> x,
                                     std::span<const double> bound) const {
  const uint32_t k = weights->n_cols;
  Expectation expected{.name = "products of planes", .output = y};
  for (uint32_t row = 0; row < rows; ++row) {
    const auto of_row = x.subspan(size_t{row} * k, k);
    const std::vector<float> in_floats(of_row.begin(), of_row.end());
    std::vector<double> errors = linear_input_errors(in_floats, XForm::kPlanes);
    for (uint32_t i = 0; i < k; ++i) errors[i] += bound[size_t{row} * k + i];
    for (uint32_t n = 0; n < weights->n_rows; ++n) {
      const LinearElement element =
          linear_element(in_floats.data(), &weights->values[size_t{n} * k], k, Math::kF32, errors);
      expected.reference.push_back(element.value);
      expected.bound.push_back(element.bound);
    }
  }
  return expected;
}

std::vector<OpCase> gemv_cases() {
  constexpr LinearShape kShapes[] = {{1, 1, 32},         {1, 512, 4096}, {1, 65, 172, true},
                                     {2, 7, 96, true},   {3, 33, 256},   {4, 100, 512, true},
                                     {5, 32, 64},        {6, 33, 2816},  {7, 100, 300},
                                     {8, 257, 512, true}};
  std::vector<LinearVariant> variants;
  for (const GemvKernel kernel : {GemvKernel::kPortable, GemvKernel::kSubgroup,
                                  GemvKernel::kBroadcast, GemvKernel::kPlanes}) {
    variants.push_back(variant_of(kernel, 1));
  }
  std::vector<OpCase> cases = linear_cases_of("gemv", kShapes, variants);
  // More and fewer tiles than there are slices of K, not as many for each, the last one cut short.
  // At least two: of one tile even wrong sums would be right.
  constexpr LinearShape kSplitShapes[] = {{1, 1, 512},  {1, 65, 1280, true}, {2, 7, 300},
                                          {3, 33, 684}, {5, 100, 768, true}, {8, 33, 5632}};
  const LinearVariant split[] = {
      variant_of(GemvKernel::kSubgroup, 2), variant_of(GemvKernel::kSubgroup, 4),
      variant_of(GemvKernel::kSubgroup, Gemv::kMaxSplits), variant_of(GemvKernel::kPlanes, 2),
      variant_of(GemvKernel::kPlanes, Gemv::kMaxSplits)};
  std::vector<OpCase> more = linear_cases_of("gemv", kSplitShapes, split);
  std::ranges::move(more, std::back_inserter(cases));
  std::ranges::move(planes_cases(), std::back_inserter(cases));
  std::ranges::move(gemv_finish_cases(), std::back_inserter(cases));
  return cases;
}

}  // namespace pumice::ops
