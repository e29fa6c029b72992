#include "shaders/expert_gemm/expert_gemm.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>

#include "format/resident_layout.hpp"
#include "shaders/common/row_shares.hpp"
#include "shaders/expert_gemm/expert_gemm.h"
#include "shaders/expert_gemm/expert_groups.h"
#include "shaders/expert_gemm/group_routes.h"
#include "shaders/experts/experts.hpp"
#include "shaders/gemm/gemm.hpp"
#include "shaders/spirv.hpp"

namespace pumice::ops {
namespace {

constexpr uint32_t kTileBytes = sizeof(ExpertTile);
constexpr uint32_t kPairBytes = 4;
// What kWordsPerPair holds: a tile for each expert, of which there are no more than pairs, and for
// each so many pairs.
constexpr uint32_t kLeastTileRows = 4;
static_assert(kTileBytes * (1 + kLeastTileRows) + kPairBytes * kLeastTileRows <=
              4 * ExpertGemm::kWordsPerPair * kLeastTileRows);
static_assert(kMostUsedExperts <= 1 << PAIR_RANK_BITS);

/// `cost` times part / all.
vk::Cost share_of(const vk::Cost& cost, uint64_t part, uint64_t all) {
  return {cost.bytes * part / all, cost.flops * part / all, cost.arithmetic};
}

}  // namespace

ExpertGemm::Tuning ExpertGemm::tuned(const TuningTarget& target) {
  const vk::TuningRow& row = take_row(target, "expert_gemm");
  return {.least_rows = row.number("least_rows"),
          .pairs_of_expert = row.number("pairs_of_expert"),
          .tile_fill = row.number("tile_fill")};
}

Result<ExpertGemm> ExpertGemm::plan(vk::PipelineLibrary& pipelines,
                                    std::span<const WeightType* const> types, Math math,
                                    XRoute path) {
  std::vector<GemmVariant> variants =
      gemm_variants(pipelines, math == Math::kI8 ? Math::kAuto : math, path);
  // Its rows are a tensor's, which are neighbours.
  std::erase_if(variants, [](const GemmVariant& variant) { return variant.name == "matrix2"; });
  return plan(pipelines, types, variants);
}

Result<ExpertGemm> ExpertGemm::plan(vk::PipelineLibrary& pipelines,
                                    std::span<const WeightType* const> types,
                                    std::span<const GemmVariant> candidates) {
  std::vector<std::string> obstacles;
  bool rejected = false;
  for (const GemmVariant& variant : candidates) {
    const auto obstructs = [&](const WeightType* type) {
      const std::string name = linear_module_name("expert_gemm", *type, variant.name);
      rejected = rejected || pipelines.is_rejected(name);
      const std::string obstacle = gemm_obstacle(pipelines, name, *type, variant);
      if (!obstacle.empty()) obstacles.push_back(fmt::format("{}: {}", name, obstacle));
      return !obstacle.empty();
    };
    if (std::ranges::any_of(types, obstructs)) continue;
    ExpertGemm op;
    op.math_ = variant.math;
    op.x_form_ = variant.x;
    if (op.x_form_ != XForm::kFloats) {
      PUMICE_TRY(op.quantize_x_, QuantizeX::plan(pipelines, op.x_form_));
    }
    op.tuning_ = tuned(pipelines);
    op.tiles_ = variant.tiles;
    PUMICE_CHECK(op.tiles_.front().rows >= kLeastTileRows, "tiles of pairs are too small");
    PUMICE_TRY(op.group_routes_,
               declare_kernel<GroupRoutesPush>(pipelines, "group_routes", GroupRoutesSpec()));
    for (const WeightType* type : types) {
      const std::string name = linear_module_name("expert_gemm", *type, variant.name);
      PUMICE_TRY(op.pipelines_[type],
                 declare_gemm_tiles(pipelines, name, variant, sizeof(ExpertGemmPush)));
    }
    return op;
  }
  return make_error(rejected ? ErrorCode::kSelfTestFailed : ErrorCode::kInvalidArgument,
                    "no products of experts for many rows of that kind on this device ({})",
                    fmt::join(obstacles, "; "));
}

size_t ExpertGemm::choose_tile(const Groups& groups) const {
  // One that an expert's pairs would fill so far if all were taken alike.
  const uint64_t average = groups.n_pairs() / groups.n_experts;
  size_t choice = 0;
  for (size_t i = 1; i < tiles_.size(); ++i) {
    if (uint64_t{tiles_[i].rows} * tuning_.tile_fill <= 100 * average) choice = i;
  }
  return choice;
}

uint32_t ExpertGemm::n_tiles(const Groups& groups) const {
  return groups.n_pairs() / tile_rows(groups) + groups.n_experts;
}

uint64_t ExpertGemm::range_bytes(const Groups& groups) const {
  return uint64_t{n_tiles(groups)} * kTileBytes + uint64_t{groups.n_pairs()} * kPairBytes;
}

void ExpertGemm::record_groups(vk::Recorder& recorder, const vk::BufferRange& routes,
                               const Groups& groups) const {
  PUMICE_CHECK(groups.range.size_bytes >= range_bytes(groups), "no room for groups of pairs");
  PUMICE_CHECK(groups.n_used <= kMostUsedExperts, "more experts than a pair can name");
  const uint64_t tiles_bytes = uint64_t{n_tiles(groups)} * kTileBytes;
  GroupRoutesPush push;
  push.routes = routes.address();
  push.tiles = groups.range.address();
  push.pairs = groups.range.address() + tiles_bytes;
  push.n_pairs = groups.n_pairs();
  push.n_used = groups.n_used;
  push.n_experts = groups.n_experts;
  push.tile_rows = tile_rows(groups);
  const uint64_t routes_bytes = uint64_t{groups.n_pairs()} * kRouteBytes;
  const vk::Cost cost{.bytes = routes_bytes + range_bytes(groups)};
  dispatch_rows(
      recorder, *group_routes_, push, groups.n_experts,
      {vk::reads(routes.subrange(0, routes_bytes)),
       vk::writes(groups.range.subrange(0, range_bytes(groups)))},
      [&](uint32_t experts) { return share_of(cost, experts, groups.n_experts); },
      [](GroupRoutesPush& moved, uint64_t first, uint32_t experts) {
        moved.first_expert = static_cast<uint32_t>(first);
        return vk::Grid{experts};
      });
}

void ExpertGemm::record(vk::Recorder& recorder, const Args& args) const {
  if (!quantize_x_) return record_products(recorder, args);
  const uint32_t n_cols = args.weights.n_cols;
  const bool of_ranks = args.x_rank_stride != 0;
  const uint32_t x_rows = of_ranks ? args.groups.n_pairs() : args.groups.rows;
  PUMICE_CHECK(!of_ranks || args.x_stride == args.groups.n_used * args.x_rank_stride,
               "rows of ranks lie one after the other");
  quantize_x_->record(recorder, {.x = args.x,
                                 .x_stride = of_ranks ? args.x_rank_stride : args.x_stride,
                                 .rows = x_rows,
                                 .k = n_cols,
                                 .y = args.scratch});
  const uint32_t stride = HalvedX::stride(n_cols);
  Args halved = args;
  halved.x = args.scratch.subrange(0, x_bytes(x_rows, n_cols));
  halved.x_stride = of_ranks ? args.groups.n_used * stride : stride;
  halved.x_rank_stride = of_ranks ? stride : 0;
  record_products(recorder, halved);
}

void ExpertGemm::record_products(vk::Recorder& recorder, const Args& args) const {
  const WeightMatrix& weights = args.weights;
  const Groups& groups = args.groups;
  const auto of_type = pipelines_.find(weights.type);
  PUMICE_CHECK(of_type != pipelines_.end(), "products of experts not planned for this type");
  PUMICE_CHECK(groups.n_experts > 0 && weights.n_rows % groups.n_experts == 0,
               "experts of different sizes");
  PUMICE_CHECK(args.x_stride % 4 == 0 && args.x_rank_stride % 4 == 0 && args.x.address() % 16 == 0,
               "x must be 16-byte aligned");
  const uint32_t n = weights.n_rows / groups.n_experts;
  PUMICE_CHECK(args.y_stride >= n, "y_stride must hold an expert's rows");
  const size_t choice = choose_tile(groups);
  const GemmTile& tile = tiles_[choice];
  const uint32_t tiles = n_tiles(groups);
  const uint32_t col_tiles = (n + tile.cols - 1) / tile.cols;
  const bool has_bias = !args.bias.empty();

  ExpertGemmPush push;
  push.x = args.x.address();
  push.y = args.y.address();
  push.grid = weights.grid.address();
  push.tiles = groups.range.address();
  push.pairs = push.tiles + uint64_t{tiles} * kTileBytes;
  push.bias = (has_bias ? args.bias : args.x).address();
  push.n = n;
  push.k = weights.n_cols;
  push.n_col_tiles = static_cast<uint32_t>(n_col_tiles(*weights.type, weights.n_cols));
  push.n_used = groups.n_used;
  push.x_stride = args.x_stride;
  push.x_rank_stride = args.x_rank_stride;
  push.y_stride = args.y_stride;
  push.has_bias = has_bias;

  const uint64_t pairs = groups.n_pairs();
  const uint64_t x_rows = args.x_rank_stride == 0 ? groups.rows : pairs;
  const uint64_t read_rows = std::min<uint64_t>(groups.n_experts, pairs) * n;  // of weights
  const uint64_t row_bytes = row_group_bytes(*weights.type, weights.n_cols) / kRowGroup;
  const vk::Cost whole{.bytes = read_rows * (row_bytes + (has_bias ? 4 : 0)) +
                                x_rows * weights.n_cols * 4 + pairs * n * 4 + range_bytes(groups),
                       .flops = 2 * pairs * n * weights.n_cols + (has_bias ? pairs * n : 0),
                       .arithmetic = gemm_arithmetic(math_)};
  const std::initializer_list<vk::Access> all = {
      vk::reads(weights.parts[0].range), vk::reads(args.x),
      vk::reads(groups.range.subrange(0, range_bytes(groups))), vk::reads(args.bias),
      vk::writes_columns(args.y, pairs, uint64_t{args.y_stride} * 4, uint64_t{n} * 4)};
  const std::initializer_list<vk::Access> none;
  // All dispatches write different elements of y, so no barrier may come between them: the first
  // declares the accesses of all. Weights are not written while in use. Nobody knows here which
  // tiles have how many pairs, nor in which part of the weights: each is taken to have its share.
  bool first_dispatch = true;
  for (const WeightMatrixPart& part : weights.parts) {
    push.weights = part.range.address();
    push.first_row = part.first_row;
    push.part_rows = part.n_rows;
    const auto cost_of = [&](uint32_t some_tiles, uint32_t some_cols) {
      const vk::Cost cost = share_of(whole, part.n_rows, weights.n_rows);
      return share_of(share_of(cost, some_tiles, tiles), some_cols, col_tiles);
    };
    const vk::SegmentLimit& limit = recorder.segment_limit();
    const uint32_t most_tiles =
        rows_within(limit, tiles, [&](uint32_t some) { return cost_of(some, col_tiles); });
    const uint32_t most_cols =
        most_tiles > 1
            ? col_tiles
            : rows_within(limit, col_tiles, [&](uint32_t some) { return cost_of(1, some); });
    const Shares tile_shares(tiles, most_tiles);
    const Shares col_shares(col_tiles, most_cols);
    for (uint32_t t = 0; t < tile_shares.size(); ++t) {
      for (uint32_t c = 0; c < col_shares.size(); ++c) {
        push.first_tile = tile_shares[t].first;
        push.first_col_tile = col_shares[c].first;
        const vk::Grid grid{tile_shares[t].n, col_shares[c].n};
        recorder.dispatch(*of_type->second[choice], push, grid, first_dispatch ? all : none,
                          cost_of(grid.x, grid.y));
        first_dispatch = false;
      }
    }
  }
}

}  // namespace pumice::ops
