#include "shaders/gated_activation/gated_activation.hpp"

#include "shaders/gated_activation/gated_activation.h"
#include "shaders/spirv.hpp"

namespace pumice::ops {
namespace {

using Kind = GatedActivation::Kind;
static_assert(static_cast<uint32_t>(Kind::kSilu) == ACTIVATION_SILU);
static_assert(static_cast<uint32_t>(Kind::kGelu) == ACTIVATION_GELU);
static_assert(static_cast<uint32_t>(Kind::kGeluTanh) == ACTIVATION_GELU_TANH);

/// Of a gate and the product with up: silu is an exponential, an addition and a division.
constexpr uint32_t kFlops[] = {4, 5, 9};

}  // namespace

Result<GatedActivation> GatedActivation::plan(vk::PipelineLibrary& pipelines, Kind kind) {
  PUMICE_TRY(const vk::ShaderModule module, find_spirv("gated_activation"));
  const GatedActivationSpec spec{.kind = static_cast<uint32_t>(kind)};
  GatedActivation op;
  op.kind_ = kind;
  op.columns_per_workgroup_ = 4 * spec.workgroup_size;
  PUMICE_TRY(op.pipeline_, pipelines.declare({.module = module,
                                              .constants = vk::constants_of(spec),
                                              .push_bytes = sizeof(GatedActivationPush)}));
  return op;
}

void GatedActivation::record(vk::Recorder& recorder, const Args& args) const {
  GatedActivationPush push;
  push.gate_up = args.gate_up.address();
  push.y = args.y.address();
  push.n = args.n;
  const uint64_t elements = uint64_t{args.rows} * args.n;
  const uint32_t workgroups = (args.n + columns_per_workgroup_ - 1) / columns_per_workgroup_;
  recorder.dispatch(
      *pipeline_, push, {workgroups, args.rows}, {vk::reads(args.gate_up), vk::writes(args.y)},
      {.bytes = elements * 12, .flops = elements * kFlops[static_cast<size_t>(kind_)]});
}

}  // namespace pumice::ops
