#include "shaders/swiglu/swiglu.hpp"

#include "shaders/spirv.hpp"
#include "shaders/swiglu/swiglu.h"

namespace pumice::ops {

Result<Swiglu> Swiglu::plan(vk::PipelineLibrary& pipelines) {
  PUMICE_TRY(const vk::ShaderModule module, find_spirv("swiglu"));
  const SwigluSpec spec;
  Swiglu op;
  op.columns_per_workgroup_ = 4 * spec.workgroup_size;
  PUMICE_TRY(op.pipeline_, pipelines.declare({.module = module,
                                              .constants = vk::constants_of(spec),
                                              .push_bytes = sizeof(SwigluPush)}));
  return op;
}

void Swiglu::record(vk::Recorder& recorder, const Args& args) const {
  SwigluPush push;
  push.gate_up = args.gate_up.address();
  push.y = args.y.address();
  push.n = args.n;
  const uint64_t elements = uint64_t{args.rows} * args.n;
  const uint32_t workgroups = (args.n + columns_per_workgroup_ - 1) / columns_per_workgroup_;
  // silu counts as four operations: exponential, addition, division, multiplication by up.
  recorder.dispatch(*pipeline_, push, {workgroups, args.rows},
                    {vk::reads(args.gate_up), vk::writes(args.y)},
                    {.bytes = elements * 12, .flops = elements * 4});
}

}  // namespace pumice::ops
