#include "shaders/experts/experts.hpp"

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "format/resident_layout.hpp"
#include "shaders/common/row_shares.hpp"
#include "shaders/common/tuning.hpp"
#include "shaders/experts/combine.h"
#include "shaders/experts/expert_linear.h"
#include "shaders/experts/route.h"
#include "shaders/experts/routes.h"
#include "shaders/spirv.hpp"

namespace pumice::ops {
namespace {

uint32_t choice_constant(const Route::Kind& kind) {
  if (kind.given) return ROUTE_GIVEN;
  return kind.biased ? ROUTE_BY_BIASED_SCORE : ROUTE_BY_SCORE;
}

}  // namespace

static_assert(kMostExperts == MOST_EXPERTS && kMostUsedExperts == MOST_USED);
static_assert(kMostExpertGroups == MOST_GROUPS);
static_assert(kRouteBytes == sizeof(ExpertRoute));

Result<Route> Route::plan(vk::PipelineLibrary& pipelines, const Kind& kind) {
  static_assert(static_cast<int>(Kind::Probability::kSoftmax) == ROUTE_SOFTMAX &&
                static_cast<int>(Kind::Probability::kSigmoid) == ROUTE_SIGMOID);
  const RouteSpec spec{.probability = static_cast<uint32_t>(kind.probability),
                       .choice = choice_constant(kind),
                       .grouped = kind.grouped && !kind.given,
                       .renormalised = kind.renormalised,
                       .has_gains = kind.gained};
  Route op;
  op.kind_ = kind;
  PUMICE_TRY(op.pipeline_, declare_kernel<RoutePush>(pipelines, "expert_route", spec));
  return op;
}

void Route::record(vk::Recorder& recorder, const Args& args) const {
  PUMICE_CHECK(args.n_experts <= kMostExperts, "too many experts");
  PUMICE_CHECK(args.n_used > 0 && args.n_used <= std::min(args.n_experts, kMostUsedExperts),
               "as many experts cannot be used");
  const uint32_t n_groups = kind_.grouped ? args.n_groups : 1;
  const uint32_t n_used_groups = kind_.grouped ? args.n_used_groups : 1;
  PUMICE_CHECK(n_groups > 0 && n_groups <= kMostExpertGroups && args.n_experts % n_groups == 0,
               "experts are not in so many groups");
  PUMICE_CHECK(n_used_groups <= n_groups &&
                   uint64_t{args.n_experts} / n_groups * n_used_groups >= args.n_used,
               "too few experts in so many groups");
  RoutePush push;
  push.scores = args.scores.address();
  const bool reads_bias = kind_.biased && !kind_.given;
  push.bias = (reads_bias ? args.bias : args.scores).address();
  push.gains = (kind_.gained ? args.gains : args.scores).address();
  push.routes = args.routes.address();
  push.n_experts = args.n_experts;
  push.n_used = args.n_used;
  push.n_groups = n_groups;
  push.n_used_groups = n_used_groups;
  push.scale = args.scale;
  const uint64_t scores_bytes = uint64_t{args.n_experts} * 4;
  const uint64_t routes_bytes = uint64_t{args.n_used} * kRouteBytes;
  dispatch_rows(
      recorder, *pipeline_, push, args.rows,
      {vk::reads(args.scores), reads_bias ? vk::reads(args.bias) : vk::Access{},
       kind_.gained ? vk::reads(args.gains) : vk::Access{},
       kind_.given ? vk::updates(args.routes) : vk::writes(args.routes)},
      [&](uint32_t rows) { return vk::Cost{.bytes = rows * (scores_bytes + routes_bytes)}; },
      [&](RoutePush& moved, uint32_t first, uint32_t rows) {
        moved.scores += first * scores_bytes;
        moved.routes += first * routes_bytes;
        return vk::Grid{rows};
      });
}

Result<ExpertLinear> ExpertLinear::plan(vk::PipelineLibrary& pipelines, const WeightType& type,
                                        bool has_bias, uint32_t n_slices) {
  PUMICE_TRY(const vk::ShaderModule module, find_spirv("expert_linear", type));
  if (n_slices == 0) {
    const auto facts = vk::TuningFacts().set("type", tuning_word(type));
    n_slices = take_row(pipelines, "expert_linear", facts).number("n_slices");
  }
  const ExpertLinearSpec spec{.workgroup_size = n_slices * kRowGroup, .has_bias = has_bias};
  ExpertLinear op;
  op.has_bias_ = has_bias;
  PUMICE_TRY(op.pipeline_, declare_kernel<ExpertLinearPush>(pipelines, module, spec));
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
  push.bias = (has_bias_ ? args.bias : args.x).address();
  push.n = n;
  push.k = weights.n_cols;
  push.n_col_tiles = static_cast<uint32_t>(n_col_tiles(*weights.type, weights.n_cols));
  push.n_experts = args.n_experts;
  push.x_stride = args.x_stride;
  push.x_rank_stride = args.x_rank_stride;
  push.y_stride = args.y_stride;

  const uint64_t row_bytes = row_group_bytes(*weights.type, weights.n_cols) / kRowGroup;
  // Of so many groups of an expert's outputs.
  const auto cost_of = [&](uint64_t rows, uint64_t groups) {
    const uint64_t outputs = std::min<uint64_t>(groups * kRowGroup, n);
    const uint64_t routes = rows * args.n_used;
    const uint64_t x_rows = args.x_rank_stride == 0 ? rows : routes;
    const uint64_t experts_read = std::min<uint64_t>(args.n_experts, routes);
    return vk::Cost{
        .bytes = experts_read * outputs * row_bytes + x_rows * weights.n_cols * 4 +
                 routes * (outputs * 4 + kRouteBytes) +
                 (has_bias_ ? experts_read * outputs * 4 : 0),
        .flops = 2 * routes * outputs * weights.n_cols + (has_bias_ ? routes * outputs : 0)};
  };
  const uint64_t all_routes = uint64_t{args.rows} * args.n_used;
  const std::initializer_list<vk::Access> none;
  const std::initializer_list<vk::Access> all = {
      vk::reads(weights.parts[0].range), vk::reads(args.x), vk::reads(args.routes),
      vk::reads(args.bias),
      vk::writes_columns(args.y, all_routes, uint64_t{args.y_stride} * 4, uint64_t{n} * 4)};
  for (const WeightMatrixPart& part : weights.parts) {
    push.weights = part.range.address();
    push.first_row = part.first_row;
    push.part_rows = part.n_rows;
    // The parts' dispatches write disjoint elements of y, so no barrier may come between them: the
    // first declares the accesses of all. Weights are not written while in use. Which part a row's
    // experts are in nobody knows here: each is taken to have its share.
    dispatch_parts(
        recorder, *pipeline_, push, args.rows, (n + kRowGroup - 1) / kRowGroup,
        &part == &weights.parts[0] ? all : none,
        [&](uint64_t rows, uint64_t groups) {
          vk::Cost cost = cost_of(rows, groups);
          cost.bytes = cost.bytes * part.n_rows / weights.n_rows;
          cost.flops = cost.flops * part.n_rows / weights.n_rows;
          return cost;
        },
        [&](ExpertLinearPush& moved, Share rows, Share groups) {
          const uint64_t first = rows.first;
          moved.x += first * args.x_stride * 4;
          moved.routes += first * args.n_used * kRouteBytes;
          moved.y += first * args.n_used * args.y_stride * 4;
          moved.first_output = groups.first * kRowGroup;
          return vk::Grid{groups.n, args.n_used, rows.n};
        });
  }
}

Result<Combine> Combine::plan(vk::PipelineLibrary& pipelines) {
  PUMICE_TRY(const vk::ShaderModule module, find_spirv("expert_combine"));
  const CombineSpec spec;
  Combine op;
  op.columns_per_workgroup_ = 4 * spec.workgroup_size;
  PUMICE_TRY(op.pipeline_, declare_kernel<CombinePush>(pipelines, module, spec));
  return op;
}

void Combine::record(vk::Recorder& recorder, const Args& args) const {
  CombinePush push;
  push.x = args.x.address();
  push.routes = args.routes.address();
  push.y = args.y.address();
  push.n = args.n;
  push.n_used = args.n_used;
  const uint64_t row_bytes = uint64_t{args.n} * 4;
  dispatch_rows(
      recorder, *pipeline_, push, args.rows,
      {vk::reads(args.x), vk::reads(args.routes), vk::writes(args.y)},
      [&](uint64_t rows) {
        return vk::Cost{
            .bytes = rows * (row_bytes * (args.n_used + 1) + uint64_t{args.n_used} * kRouteBytes),
            .flops = 2 * rows * args.n * args.n_used};
      },
      [&](CombinePush& moved, uint64_t first, uint32_t rows) {
        moved.x += first * args.n_used * row_bytes;
        moved.routes += first * args.n_used * kRouteBytes;
        moved.y += first * row_bytes;
        return vk::Grid{(args.n + columns_per_workgroup_ - 1) / columns_per_workgroup_, rows};
      });
}

}  // namespace pumice::ops
