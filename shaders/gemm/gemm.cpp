#include "shaders/gemm/gemm.hpp"

#include <fmt/ranges.h>

#include "shaders/common/row_shares.hpp"
#include "shaders/gemm/gemm.h"
#include "shaders/spirv.hpp"

namespace pumice::ops {

vk::Arithmetic gemm_arithmetic(Math math) {
  switch (math) {
    case Math::kF16:
      return vk::Arithmetic::kMatrixF16F32;
    case Math::kI8:
      return vk::Arithmetic::kInt8Dot;
    default:
      return vk::Arithmetic::kF32;
  }
}

std::string gemm_obstacle(const vk::PipelineLibrary& pipelines, const std::string& name,
                          const WeightType& type, const GemmVariant& variant) {
  if (!variant.obstacle.empty()) return variant.obstacle;
  if (!variant.grid_obstacle.empty() && !type.grid.empty()) {
    return std::string(variant.grid_obstacle);
  }
  const Result<vk::ShaderModule> module = find_spirv(name);
  return module.ok() ? pipelines.obstacle(*module) : "it is not in this build";
}

Result<std::vector<const vk::Pipeline*>> declare_gemm_tiles(vk::PipelineLibrary& pipelines,
                                                            const std::string& name,
                                                            const GemmVariant& variant,
                                                            uint32_t push_bytes) {
  PUMICE_TRY(const vk::ShaderModule module, find_spirv(name));
  std::vector<const vk::Pipeline*> declared;
  for (const GemmTile& tile : variant.tiles) {
    PUMICE_TRY(
        const vk::Pipeline* pipeline,
        pipelines.declare({.module = module,
                           .label = variant.tiles.size() == 1
                                        ? name
                                        : fmt::format("{}.{}x{}", name, tile.rows, tile.cols),
                           .constants = tile.constants,
                           .push_bytes = push_bytes,
                           .subgroup_size = variant.subgroup_size,
                           .full_subgroups = variant.full_subgroups}));
    declared.push_back(pipeline);
  }
  return declared;
}

Result<Gemm> Gemm::plan(vk::PipelineLibrary& pipelines, const WeightType& type,
                        std::span<const GemmVariant> candidates) {
  std::vector<std::string> obstacles;
  bool rejected = false;
  for (const GemmVariant& variant : candidates) {
    const std::string name = linear_module_name("gemm", type, variant.name);
    rejected = rejected || pipelines.is_rejected(name);
    const std::string obstacle = gemm_obstacle(pipelines, name, type, variant);
    if (!obstacle.empty()) {
      obstacles.push_back(fmt::format("{}: {}", name, obstacle));
      continue;
    }
    Gemm op;
    op.math_ = variant.math;
    op.x_form_ = variant.x;
    op.tiles_ = variant.tiles;
    PUMICE_TRY(op.pipelines_, declare_gemm_tiles(pipelines, name, variant, sizeof(GemmPush)));
    if (variant.chosen) pipelines.note(*variant.chosen);
    return op;
  }
  return make_error(rejected ? ErrorCode::kSelfTestFailed : ErrorCode::kInvalidArgument,
                    "no matrix product of that kind on this device ({})",
                    obstacles.empty() ? "this version has no kernel for it"
                                      : fmt::format("{}", fmt::join(obstacles, "; ")));
}

void Gemm::record(vk::Recorder& recorder, const LinearArgs& args) const {
  check_linear_args(args);
  const uint64_t x_bytes = x_form_bytes(x_form_, args.rows, args.weights.n_cols);
  const vk::Access reads_x =
      x_bytes > 0 ? vk::reads(args.x.subrange(0, x_bytes)) : linear_reads_x(args);
  for (const WeightMatrixPart& part : args.weights.parts) {
    // Of the whole part: another tile may round differently.
    const size_t choice = choose_gemm_tile(tiles_, args.rows, part.n_rows);
    const GemmTile& tile = tiles_[choice];
    for (const LinearShare& share :
         linear_shares(args, part, recorder.segment_limit(), tile.cols, gemm_arithmetic(math_))) {
      // All rows of one workgroup's outputs may be too much as well.
      const uint32_t n_tiles = (args.rows + tile.rows - 1) / tile.rows;
      const auto cost_of = [&](uint64_t begin, uint64_t end) {
        const auto of = [&](uint64_t all) { return all * end / n_tiles - all * begin / n_tiles; };
        return vk::Cost{of(share.cost.bytes), of(share.cost.flops), share.cost.arithmetic};
      };
      const uint32_t most =
          rows_within(recorder.segment_limit(), n_tiles, [&](uint32_t n) { return cost_of(0, n); });
      const Shares tiles(n_tiles, most);
      GemmPush push = linear_push<GemmPush>(args, share.part);
      if (x_form_ == XForm::kHalves) push.x_stride = HalvedX::stride(args.weights.n_cols);
      const std::initializer_list<vk::Access> none;
      const std::initializer_list<vk::Access> all = {vk::reads(share.part.range), reads_x,
                                                     linear_writes_y(args, share.part)};
      for (uint32_t i = 0; i < tiles.size(); ++i) {
        push.first_row = tiles[i].first * tile.rows;
        const vk::Grid grid{tiles[i].n, (share.part.n_rows + tile.cols - 1) / tile.cols};
        recorder.dispatch(*pipelines_[choice], push, grid, i == 0 ? all : none,
                          cost_of(tiles[i].first, tiles[i].first + tiles[i].n));
      }
    }
  }
}

}  // namespace pumice::ops
