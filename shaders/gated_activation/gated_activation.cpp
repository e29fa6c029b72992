#include "shaders/gated_activation/gated_activation.hpp"

#include <cstddef>
#include <cstdint>

#include "shaders/common/row_shares.hpp"
#include "shaders/common/tuning.hpp"
#include "shaders/gated_activation/gated_activation.h"
#include "shaders/quantize_x/quantize_x.hpp"
#include "shaders/spirv.hpp"

namespace pumice::ops {
namespace {

using Kind = GatedActivation::Kind;
static_assert(static_cast<uint32_t>(Kind::kSilu) == ACTIVATION_SILU);
static_assert(static_cast<uint32_t>(Kind::kGelu) == ACTIVATION_GELU);
static_assert(static_cast<uint32_t>(Kind::kGeluTanh) == ACTIVATION_GELU_TANH);
static_assert(static_cast<uint32_t>(Kind::kSigmoid) == ACTIVATION_SIGMOID);
static_assert(static_cast<uint32_t>(Kind::kRelu) == ACTIVATION_RELU);

/// Of a gate and the product with up: silu is an exponential, an addition and a division.
constexpr uint32_t kFlops[] = {4, 5, 9, 4, 2};

}  // namespace

Result<GatedActivation> GatedActivation::plan(vk::PipelineLibrary& pipelines, Kind kind) {
  const vk::TuningRow& row = take_row(pipelines, "gated_activation", {});
  return plan(pipelines, kind, row.choice == "planes" ? Variant::kPlanes : Variant::kPlain);
}

Result<GatedActivation> GatedActivation::plan(vk::PipelineLibrary& pipelines, Kind kind,
                                              Variant variant) {
  const GatedActivationSpec spec{.kind = static_cast<uint32_t>(kind),
                                 .makes_planes = variant == Variant::kPlanes};
  GatedActivation op;
  op.kind_ = kind;
  op.variant_ = variant;
  op.columns_per_workgroup_ = 4 * spec.workgroup_size;
  PUMICE_TRY(op.pipeline_,
             declare_kernel<GatedActivationPush>(pipelines, "gated_activation", spec));
  return op;
}

bool GatedActivation::makes_planes(uint32_t n) const {
  return variant_ == Variant::kPlanes && n % PlanesOfX::kBlockCols == 0;
}

void GatedActivation::record(vk::Recorder& recorder, const Args& args) const {
  const uint64_t n = args.n;
  const uint32_t workgroups = (args.n + columns_per_workgroup_ - 1) / columns_per_workgroup_;
  PUMICE_CHECK(args.planes.empty() || makes_planes(args.n), "this kernel writes no planes");
  const auto planes_bytes = [&](uint64_t rows) {
    return args.planes.empty() ? 0 : PlanesOfX::size_bytes(rows, args.n);
  };
  GatedActivationPush push;
  push.gate_up = args.gate_up.address();
  push.y = args.y.address();
  push.planes = (args.planes.empty() ? args.y : args.planes).address();
  push.n = args.n;
  push.to_planes = !args.planes.empty();
  dispatch_rows(
      recorder, *pipeline_, push, args.rows,
      {vk::reads(args.gate_up.subrange(0, args.rows * n * 8)),
       vk::writes(args.y.subrange(0, args.rows * n * 4)),
       vk::writes(args.planes.subrange(0, planes_bytes(args.rows)))},
      [&](uint32_t rows) {
        return vk::Cost{.bytes = rows * n * 12 + planes_bytes(rows),
                        .flops = rows * n * kFlops[static_cast<size_t>(kind_)]};
      },
      [&](GatedActivationPush& moved, uint32_t first, uint32_t rows) {
        moved.gate_up += first * n * 8;
        moved.y += first * n * 4;
        moved.planes += planes_bytes(first);
        return vk::Grid{workgroups, rows};
      });
}

}  // namespace pumice::ops
