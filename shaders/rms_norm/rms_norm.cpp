#include "shaders/rms_norm/rms_norm.hpp"

#include <algorithm>

#include "shaders/common/row_shares.hpp"
#include "shaders/common/tuning.hpp"
#include "shaders/quantize_x/quantize_x.hpp"
#include "shaders/rms_norm/rms_norm.h"
#include "shaders/rms_norm/rms_norm_wide.h"
#include "shaders/spirv.hpp"

namespace pumice::ops {
namespace {

constexpr const char* kWideModule = "rms_norm.wide";

}  // namespace

bool RmsNorm::supported(const vk::DevicePlan& plan, Variant variant) {
  return variant == Variant::kPortable || (plan.subgroup.basic && plan.subgroup.arithmetic);
}

Result<RmsNorm> RmsNorm::plan(vk::PipelineLibrary& pipelines) {
  const vk::TuningRow& row =
      take_row(pipelines, "rms_norm", {}, [&](const vk::TuningRow& one) -> std::string {
        if (one.choice != "wide") return "";
        if (!supported(pipelines.device()->plan(), Variant::kWide))
          return "it needs subgroupArithmetic";
        return pipelines.is_rejected(kWideModule) ? "it failed this device's self-test" : "";
      });
  return RmsNorm::plan(pipelines, row.choice == "wide" ? Variant::kWide : Variant::kPortable);
}

Result<RmsNorm> RmsNorm::plan(vk::PipelineLibrary& pipelines, Variant variant) {
  const vk::DevicePlan& plan = pipelines.device()->plan();
  RmsNorm op;
  PUMICE_TRY(op.portable_, declare_kernel<RmsNormPush>(pipelines, "rms_norm", RmsNormSpec{}));
  if (variant == Variant::kPortable) return op;
  if (!supported(plan, variant)) {
    return make_error(ErrorCode::kInvalidArgument, "{} needs subgroupArithmetic", kWideModule);
  }
  PUMICE_TRY(const vk::ShaderModule module, find_spirv(kWideModule));
  const uint32_t most = std::min(plan.max_workgroup_invocations, plan.max_workgroup_size[0]);
  const uint32_t workgroup_size =
      take_row(pipelines, "rms_norm_wide", {}, [&](const vk::TuningRow& row) {
        const bool fits = row.number("workgroup_size") <= most;
        return fits ? "" : "its workgroups are too large";
      }).number("workgroup_size");
  for (const uint32_t quads : {1u, 2u, 4u, 8u}) {
    const RmsNormWideSpec spec{.workgroup_size = workgroup_size, .quads = quads};
    Wide& wide = op.wide_.emplace_back();
    wide.most_n = workgroup_size * quads * 4;
    PUMICE_TRY(wide.pipeline, declare_kernel<RmsNormPush>(pipelines, module, spec));
  }
  return op;
}

const vk::Pipeline* RmsNorm::pipeline_for(uint32_t n, bool in_quads) const {
  const auto fitting =
      std::ranges::find_if(wide_, [n](const Wide& wide) { return n <= wide.most_n; });
  return !in_quads || fitting == wide_.end() ? portable_ : fitting->pipeline;
}

bool RmsNorm::makes_planes(uint32_t n, uint32_t x_stride, uint32_t y_stride) const {
  const bool in_quads = x_stride % 4 == 0 && y_stride % 4 == 0;
  return n % PlanesOfX::kBlockCols == 0 && pipeline_for(n, in_quads) != portable_;
}

void RmsNorm::record(vk::Recorder& recorder, const Args& args) const {
  const bool add = !args.residual.empty();
  const bool gather = !args.row_index.empty();
  const uint32_t width = args.n_groups * args.n;
  const uint32_t x_stride = args.x_stride != 0 ? args.x_stride : width;
  const uint32_t y_stride = args.y_stride != 0 ? args.y_stride : width;
  PUMICE_CHECK(x_stride >= width && y_stride >= width, "groups of one row in another");
  const bool in_quads = args.n % 4 == 0 && x_stride % 4 == 0 && y_stride % 4 == 0 &&
                        args.x.address() % 16 == 0 && args.y.address() % 16 == 0;
  PUMICE_CHECK(args.planes.empty() ||
                   (args.n_groups == 1 && in_quads && makes_planes(args.n, x_stride, y_stride)),
               "this kernel writes no planes");
  const uint64_t n_weights = uint64_t{args.n} * (args.weight_each ? args.n_groups : 1);
  const auto planes_bytes = [&](uint64_t rows) {
    return args.planes.empty() ? 0 : PlanesOfX::size_bytes(rows, args.n);
  };
  RmsNormPush push;
  push.x = args.x.address();
  // Optional arrays that are absent point at x: lavapipe 26 performs loads from uniform addresses
  // in branches that no invocation takes.
  push.residual = (add ? args.residual : args.x).address();
  push.weight = (args.weight.empty() ? args.x : args.weight).address();
  push.y = args.y.address();
  push.planes = (args.planes.empty() ? args.y : args.planes).address();
  push.to_planes = !args.planes.empty();
  push.row_index = (gather ? args.row_index : args.x).address();
  push.add_residual = add;
  push.gather = gather;
  push.weighted = !args.weight.empty();
  push.n = args.n;
  push.x_stride = x_stride;
  push.y_stride = y_stride;
  push.eps = args.eps;
  push.weight_stride = args.weight_each ? args.n : 0;
  dispatch_rows(
      recorder, *pipeline_for(args.n, in_quads), push, args.rows,
      {add ? vk::updates(args.x) : vk::reads(args.x), vk::reads(args.residual),
       vk::reads(args.weight),
       vk::writes_columns(args.y, args.rows, uint64_t{y_stride} * 4, uint64_t{width} * 4),
       vk::reads(args.row_index), vk::writes(args.planes.subrange(0, planes_bytes(args.rows)))},
      [&](uint32_t rows) {
        const uint64_t elements = uint64_t{rows} * width;
        return vk::Cost{.bytes = elements * (add ? 16 : 8) + n_weights * 4 + planes_bytes(rows),
                        .flops = elements * (add ? 5 : 4)};
      },
      [&](RmsNormPush& moved, uint32_t first, uint32_t rows) {
        move_norm(moved, first);
        moved.planes += planes_bytes(first);
        return vk::Grid{rows, args.n_groups};
      });
}

}  // namespace pumice::ops
