#include "shaders/common/linear_cases.hpp"
#include "shaders/gemv/gemv.hpp"

namespace pumice::ops {

std::vector<OpCase> gemv_cases() {
  constexpr LinearShape kShapes[] = {{1, 1, 32},    {1, 512, 4096}, {1, 65, 172}, {2, 7, 96},
                                     {3, 33, 256},  {4, 100, 512},  {5, 32, 64},  {6, 33, 2816},
                                     {7, 100, 300}, {8, 257, 512}};
  return linear_cases_of(
      "gemv", kShapes,
      [](OpBed& bed, const WeightType& type,
         XPath path) -> Result<std::function<void(vk::Recorder&, const LinearArgs&)>> {
        PUMICE_TRY(const Gemv op, Gemv::plan(bed.pipelines(), type, path));
        return std::function(
            [op](vk::Recorder& recorder, const LinearArgs& args) { op.record(recorder, args); });
      });
}

}  // namespace pumice::ops
