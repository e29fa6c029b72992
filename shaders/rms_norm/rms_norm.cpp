#include "shaders/rms_norm/rms_norm.hpp"

#include "shaders/rms_norm/rms_norm.h"
#include "shaders/spirv.hpp"

namespace pumice::ops {

Result<RmsNorm> RmsNorm::plan(vk::PipelineLibrary& pipelines) {
  PUMICE_TRY(const vk::ShaderModule module, find_spirv("rms_norm"));
  RmsNorm op;
  for (const uint32_t add_residual : {0u, 1u}) {
    for (const uint32_t gather : {0u, 1u}) {
      const RmsNormSpec spec{.add_residual = add_residual, .gather = gather};
      PUMICE_TRY(op.pipelines_[add_residual][gather],
                 pipelines.declare({.module = module,
                                    .constants = vk::constants_of(spec),
                                    .push_bytes = sizeof(RmsNormPush)}));
    }
  }
  return op;
}

void RmsNorm::record(vk::Recorder& recorder, const Args& args) const {
  const bool add = !args.residual.empty();
  const bool gather = !args.row_index.empty();
  RmsNormPush push;
  push.x = args.x.address();
  push.residual = add ? args.residual.address() : 0;
  push.weight = args.weight.address();
  push.y = args.y.address();
  push.row_index = gather ? args.row_index.address() : 0;
  push.n = args.n;
  push.eps = args.eps;
  const uint64_t elements = uint64_t{args.rows} * args.n;
  const vk::Cost cost{.bytes = elements * (add ? 16 : 8) + args.n * 4,
                      .flops = elements * (add ? 5 : 4)};
  recorder.dispatch(*pipelines_[add][gather], push, {args.rows},
                    {add ? vk::updates(args.x) : vk::reads(args.x), vk::reads(args.residual),
                     vk::reads(args.weight), vk::writes(args.y), vk::reads(args.row_index)},
                    cost);
}

}  // namespace pumice::ops
