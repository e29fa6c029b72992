#include <array>
#include <iterator>

#include "shaders/common/linear_cases.hpp"
#include "shaders/gemv/gemv_cases.hpp"

namespace pumice::ops {

bool gemv_compiles_quickly(const vk::DevicePlan& plan, GemvKernel kernel, const WeightType& type) {
  const bool old_cpu_driver =
      plan.driver.name == "mesa_llvmpipe" && plan.driver.version < std::array{25u, 0u, 0u};
  return kernel != GemvKernel::kSubgroup || !old_cpu_driver || type.block_elements < 256;
}

namespace {

LinearVariant variant_of(GemvKernel kernel, uint32_t splits) {
  LinearVariant variant;
  variant.name = kernel == GemvKernel::kPortable ? "portable" : gemv_kernel_name(kernel);
  variant.planner =
      [=](OpBed& bed,
          const WeightType& type) -> Result<std::function<void(vk::Recorder&, const LinearArgs&)>> {
    PUMICE_TRY(Gemv op, Gemv::plan(bed.pipelines(), type, kernel));
    PUMICE_TRY_STATUS(op.force_splits(splits));
    return std::function(
        [op](vk::Recorder& recorder, const LinearArgs& args) { op.record(recorder, args); });
  };
  variant.supported = [=](const vk::DevicePlan& plan, const WeightType& type) {
    return gemv_kernel_supported(plan, kernel) && gemv_compiles_quickly(plan, kernel, type);
  };
  if (splits > 1) {
    variant.name += fmt::format(" splits={}", splits);
    variant.scratch_bytes = [=](const LinearShape& shape) {
      return uint64_t{splits} * shape.rows * shape.n * 4;
    };
  }
  return variant;
}

}  // namespace

std::vector<OpCase> gemv_cases() {
  constexpr LinearShape kShapes[] = {{1, 1, 32},         {1, 512, 4096}, {1, 65, 172, true},
                                     {2, 7, 96, true},   {3, 33, 256},   {4, 100, 512, true},
                                     {5, 32, 64},        {6, 33, 2816},  {7, 100, 300},
                                     {8, 257, 512, true}};
  std::vector<LinearVariant> variants;
  for (const GemvKernel kernel :
       {GemvKernel::kPortable, GemvKernel::kSubgroup, GemvKernel::kBroadcast}) {
    variants.push_back(variant_of(kernel, 1));
  }
  std::vector<OpCase> cases = linear_cases_of("gemv", kShapes, variants);
  // More and fewer tiles than there are slices of K, not as many for each, the last one cut short.
  // At least two: of one tile even wrong sums would be right.
  constexpr LinearShape kSplitShapes[] = {{1, 1, 512},  {1, 65, 1280, true}, {2, 7, 300},
                                          {3, 33, 684}, {5, 100, 768, true}, {8, 33, 5632}};
  const LinearVariant split[] = {variant_of(GemvKernel::kSubgroup, 2),
                                 variant_of(GemvKernel::kSubgroup, 4),
                                 variant_of(GemvKernel::kSubgroup, Gemv::kMaxSplits)};
  std::vector<OpCase> more = linear_cases_of("gemv", kSplitShapes, split);
  std::move(more.begin(), more.end(), std::back_inserter(cases));
  more = gemv_finish_cases();
  std::move(more.begin(), more.end(), std::back_inserter(cases));
  return cases;
}

}  // namespace pumice::ops
