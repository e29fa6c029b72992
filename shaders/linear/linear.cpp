#include "shaders/linear/linear.hpp"

namespace pumice::ops {

Result<Linear> Linear::plan(vk::PipelineLibrary& pipelines,
                            std::span<const WeightType* const> types, Math math, XPath path) {
  const auto variants = gemm_variants(pipelines.device()->plan(), math, path);
  Linear op;
  for (const WeightType* type : types) {
    if (op.kernels_.contains(type)) continue;
    const Result<Gemm> gemm = Gemm::plan(pipelines, *type, variants);
    if (!gemm.ok()) {
      return make_error(gemm.error().code, "--math {}: {}", math_name(math), gemm.error().message);
    }
    PUMICE_TRY(const Gemv gemv,
               Gemv::plan(pipelines, *type, Gemv::usable_path(pipelines, *type, path)));
    op.kernels_.emplace(type, Kernels{*gemm, gemv});
  }
  return op;
}

void Linear::record(vk::Recorder& recorder, const Args& args) const {
  const auto kernels = kernels_.find(args.weights.type);
  PUMICE_CHECK(kernels != kernels_.end(), "linear was not planned for this weight type");
  if (args.rows <= Gemv::kMaxRows && !gemm_only_) {
    kernels->second.gemv.record(recorder, args);
  } else {
    kernels->second.gemm.record(recorder, args);
  }
}

}  // namespace pumice::ops
