#include "shaders/experts/experts.hpp"

#include <algorithm>

#include "format/resident_layout.hpp"
#include "shaders/experts/combine.h"
#include "shaders/experts/expert_linear.h"
#include "shaders/experts/route.h"
#include "shaders/experts/routes.h"
#include "shaders/spirv.hpp"

namespace pumice::ops {

static_assert(kMostExperts == MOST_EXPERTS && kMostUsedExperts == MOST_USED);
static_assert(kRouteBytes == sizeof(ExpertRoute));

Result<Route> Route::plan(vk::PipelineLibrary& pipelines) {
  PUMICE_TRY(const vk::ShaderModule module, find_spirv("expert_route"));
  Route op;
  PUMICE_TRY(op.pipeline_, pipelines.declare({.module = module,
                                              .constants = vk::constants_of(RouteSpec{}),
                                              .push_bytes = sizeof(RoutePush)}));
  return op;
}

void Route::record(vk::Recorder& recorder, const Args& args) const {
  PUMICE_CHECK(args.n_experts <= kMostExperts, "too many experts");
  PUMICE_CHECK(args.n_used > 0 && args.n_used <= std::min(args.n_experts, kMostUsedExperts),
               "as many experts cannot be used");
  RoutePush push;
  push.scores = args.scores.address();
  push.routes = args.routes.address();
  push.n_experts = args.n_experts;
  push.n_used = args.n_used;
  const uint64_t rows = args.rows;
  recorder.dispatch(
      *pipeline_, push, {args.rows}, {vk::reads(args.scores), vk::writes(args.routes)},
      {.bytes = rows * (args.n_experts * uint64_t{4} + args.n_used * uint64_t{kRouteBytes})});
}

Result<ExpertLinear> ExpertLinear::plan(vk::PipelineLibrary& pipelines, const WeightType& type,
                                        uint32_t n_slices) {
  PUMICE_TRY(const vk::ShaderModule module, find_spirv("expert_linear", type));
  if (n_slices == 0) {  // on a CPU driver they only add barriers
    n_slices = pipelines.device()->plan().device_class == vk::DeviceClass::kGpu ? 4 : 1;
  }
  const ExpertLinearSpec spec{.workgroup_size = n_slices * kRowGroup};
  ExpertLinear op;
  PUMICE_TRY(op.pipeline_, pipelines.declare({.module = module,
                                              .constants = vk::constants_of(spec),
                                              .push_bytes = sizeof(ExpertLinearPush)}));
  return op;
}

void ExpertLinear::record(vk::Recorder& recorder, const Args& args) const {
  const WeightMatrix& weights = args.weights;
  PUMICE_CHECK(args.n_experts > 0 && weights.n_rows % args.n_experts == 0,
               "experts of different sizes");
  PUMICE_CHECK(args.x_stride % 4 == 0 && args.x_rank_stride % 4 == 0 && args.x.address() % 16 == 0,
               "x must be 16-byte aligned");
  const uint32_t n = weights.n_rows / args.n_experts;
  PUMICE_CHECK(args.y_stride >= n, "y_stride must hold an expert's rows");
  ExpertLinearPush push;
  push.x = args.x.address();
  push.routes = args.routes.address();
  push.y = args.y.address();
  push.grid = weights.grid.address();
  push.n = n;
  push.k = weights.n_cols;
  push.n_col_tiles = static_cast<uint32_t>(n_col_tiles(*weights.type, weights.n_cols));
  push.n_experts = args.n_experts;
  push.x_stride = args.x_stride;
  push.x_rank_stride = args.x_rank_stride;
  push.y_stride = args.y_stride;

  const uint64_t routes = uint64_t{args.rows} * args.n_used;
  const uint64_t x_rows = args.x_rank_stride == 0 ? args.rows : routes;
  const uint64_t experts_read = std::min<uint64_t>(args.n_experts, routes);
  const uint64_t row_bytes = row_group_bytes(*weights.type, weights.n_cols) / kRowGroup;
  const vk::Cost cost{.bytes = experts_read * n * row_bytes + x_rows * weights.n_cols * 4 +
                               routes * (n * uint64_t{4} + kRouteBytes),
                      .flops = 2 * routes * n * weights.n_cols};
  const vk::Grid grid{(n + kRowGroup - 1) / kRowGroup, args.n_used, args.rows};
  bool first = true;
  for (const WeightMatrixPart& part : weights.parts) {
    push.weights = part.range.address();
    push.first_row = part.first_row;
    push.part_rows = part.n_rows;
    // The parts' dispatches write disjoint elements of y, so no barrier may come between them: the
    // first declares the accesses (and the cost) of all. Weights are not written while in use.
    if (first) {
      recorder.dispatch(
          *pipeline_, push, grid,
          {vk::reads(part.range), vk::reads(args.x), vk::reads(args.routes),
           vk::writes_columns(args.y, routes, uint64_t{args.y_stride} * 4, uint64_t{n} * 4)},
          cost);
    } else {
      recorder.dispatch(*pipeline_, push, grid, {}, {});
    }
    first = false;
  }
}

Result<Combine> Combine::plan(vk::PipelineLibrary& pipelines) {
  PUMICE_TRY(const vk::ShaderModule module, find_spirv("expert_combine"));
  const CombineSpec spec;
  Combine op;
  op.columns_per_workgroup_ = 4 * spec.workgroup_size;
  PUMICE_TRY(op.pipeline_, pipelines.declare({.module = module,
                                              .constants = vk::constants_of(spec),
                                              .push_bytes = sizeof(CombinePush)}));
  return op;
}

void Combine::record(vk::Recorder& recorder, const Args& args) const {
  CombinePush push;
  push.x = args.x.address();
  push.routes = args.routes.address();
  push.y = args.y.address();
  push.n = args.n;
  push.n_used = args.n_used;
  const uint64_t elements = uint64_t{args.rows} * args.n;
  const uint64_t routes = uint64_t{args.rows} * args.n_used;
  recorder.dispatch(*pipeline_, push,
                    {(args.n + columns_per_workgroup_ - 1) / columns_per_workgroup_, args.rows},
                    {vk::reads(args.x), vk::reads(args.routes), vk::writes(args.y)},
                    {.bytes = elements * 4 * (args.n_used + 1) + routes * kRouteBytes,
                     .flops = 2 * elements * args.n_used});
}

}  // namespace pumice::ops
