#include "shaders/common/linear_cases.hpp"
#include "shaders/gemv/gemv.hpp"

namespace pumice::ops {

std::vector<OpCase> gemv_cases() {
  constexpr LinearShape kShapes[] = {{1, 1, 32},    {1, 512, 4096}, {1, 65, 172}, {2, 7, 96},
                                     {3, 33, 256},  {4, 100, 512},  {5, 32, 64},  {6, 33, 2816},
                                     {7, 100, 300}, {8, 257, 512}};
  std::vector<LinearVariant> variants;
  for (const GemvKernel kernel :
       {GemvKernel::kPortable, GemvKernel::kSubgroup, GemvKernel::kBroadcast}) {
    LinearVariant variant;
    variant.name = kernel == GemvKernel::kPortable ? "portable" : gemv_kernel_name(kernel);
    variant.planner = [kernel](OpBed& bed, const WeightType& type)
        -> Result<std::function<void(vk::Recorder&, const LinearArgs&)>> {
      PUMICE_TRY(const Gemv op, Gemv::plan(bed.pipelines(), type, kernel));
      return std::function(
          [op](vk::Recorder& recorder, const LinearArgs& args) { op.record(recorder, args); });
    };
    variant.supported = [kernel](const vk::DevicePlan& plan, const WeightType&) {
      return gemv_kernel_supported(plan, kernel);
    };
    variants.push_back(std::move(variant));
  }
  return linear_cases_of("gemv", kShapes, variants);
}

}  // namespace pumice::ops
