#include "shaders/rms_norm/rms_norm.hpp"

#include "shaders/rms_norm/rms_norm.h"
#include "shaders/spirv.hpp"

namespace pumice::ops {

Result<RmsNorm> RmsNorm::plan(vk::PipelineLibrary& pipelines) {
  PUMICE_TRY(const vk::ShaderModule module, find_spirv("rms_norm"));
  RmsNorm op;
  PUMICE_TRY(op.pipeline_, pipelines.declare({.module = module,
                                              .constants = vk::constants_of(RmsNormSpec{}),
                                              .push_bytes = sizeof(RmsNormPush)}));
  return op;
}

void RmsNorm::record(vk::Recorder& recorder, const Args& args) const {
  const bool add = !args.residual.empty();
  const bool gather = !args.row_index.empty();
  RmsNormPush push;
  push.x = args.x.address();
  // Optional arrays that are absent point at x: lavapipe 26 performs loads from uniform addresses
  // in branches that no invocation takes.
  push.residual = (add ? args.residual : args.x).address();
  push.weight = args.weight.address();
  push.y = args.y.address();
  push.row_index = (gather ? args.row_index : args.x).address();
  push.add_residual = add;
  push.gather = gather;
  push.n = args.n;
  push.eps = args.eps;
  const uint64_t elements = uint64_t{args.rows} * args.n;
  const vk::Cost cost{.bytes = elements * (add ? 16 : 8) + uint64_t{args.n} * 4,
                      .flops = elements * (add ? 5 : 4)};
  recorder.dispatch(*pipeline_, push, {args.rows},
                    {add ? vk::updates(args.x) : vk::reads(args.x), vk::reads(args.residual),
                     vk::reads(args.weight), vk::writes(args.y), vk::reads(args.row_index)},
                    cost);
}

}  // namespace pumice::ops
