#include "shaders/common/linear_cases.hpp"
#include "shaders/gemm/gemm.hpp"

namespace pumice::ops {

std::vector<OpCase> gemm_cases() {
  constexpr LinearShape kShapes[] = {{1, 1, 32},     {3, 7, 64},     {5, 32, 100},  {9, 33, 96},
                                     {15, 100, 512}, {16, 512, 256}, {17, 65, 172}, {31, 33, 4096},
                                     {33, 7, 512},   {129, 257, 256}};
  return linear_cases_of(
      "gemm", kShapes,
      [](OpBed& bed, const WeightType& type,
         XPath path) -> Result<std::function<void(vk::Recorder&, const LinearArgs&)>> {
        PUMICE_TRY(const Gemm op, Gemm::plan(bed.pipelines(), type, path));
        return std::function(
            [op](vk::Recorder& recorder, const LinearArgs& args) { op.record(recorder, args); });
      });
}

}  // namespace pumice::ops
