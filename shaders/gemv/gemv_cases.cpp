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

LinearVariant variant_of(GemvKernel kernel, uint32_t splits, bool x_is_given = false) {
  LinearVariant variant;
  variant.name = kernel == GemvKernel::kPortable ? "portable" : gemv_kernel_name(kernel);
  if (x_is_given) variant.name += " given";
  if (splits > 1) variant.name += fmt::format(" splits={}", splits);
  variant.supported = [=](const vk::DevicePlan& plan, const WeightType& type) {
    return gemv_runs(plan, kernel, type);
  };
  if (kernel == GemvKernel::kPlanes) variant.x = XForm::kPlanes;
  variant.x_is_given = x_is_given;
  const XForm made = x_is_given ? XForm::kFloats : variant.x;
  const auto x_bytes = [=](uint64_t rows, uint32_t k) { return x_form_bytes(made, rows, k); };
  if (splits > 1 || made != XForm::kFloats) {
    variant.scratch_bytes = [=](const LinearShape& shape) {
      return x_bytes(shape.rows, shape.k) + partial_sums_bytes(shape, splits);
    };
  }
  variant.planner =
      [=](OpBed& bed,
          const WeightType& type) -> Result<std::function<void(vk::Recorder&, const LinearArgs&)>> {
    PUMICE_TRY(Gemv op, Gemv::plan(bed.pipelines(), type, kernel));
    PUMICE_TRY_STATUS(op.force_splits(splits));
    std::optional<QuantizeX> quantize_x;
    if (made != XForm::kFloats) {
      PUMICE_TRY(quantize_x, QuantizeX::plan(bed.pipelines(), made));
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
  // Split K has the first three, those of every type.
  constexpr LinearShape kGivenShapes[] = {
      {1, 65, 160, true}, {5, 32, 1280, true}, {8, 257, 800, true}, {1, 1, 32},   {1, 512, 4096},
      {2, 7, 96},         {3, 33, 2816},       {4, 100, 512},       {6, 33, 288}, {7, 100, 512}};
  const LinearVariant given[] = {variant_of(GemvKernel::kPlanes, 1, true),
                                 variant_of(GemvKernel::kPlanes, 4, true)};
  std::ranges::move(linear_cases_of("gemv", kGivenShapes, {given, 1}), std::back_inserter(cases));
  std::ranges::move(linear_cases_of("gemv", std::span(kGivenShapes, 3), {given + 1, 1}),
                    std::back_inserter(cases));
  std::ranges::move(gemv_finish_cases(), std::back_inserter(cases));
  return cases;
}

}  // namespace pumice::ops
