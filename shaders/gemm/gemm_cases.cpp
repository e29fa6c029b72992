#include <algorithm>

#include "shaders/common/linear_cases.hpp"
#include "shaders/gemm/gemm.hpp"
#include "shaders/gemm/gemm_i8_cases.hpp"
#include "shaders/spirv.hpp"

namespace pumice::ops {
namespace {

/// The variant of that name with only its tile number `tile`, as every plan that has it would use
/// it; without tiles where the plan has not.
GemmVariant only(const DevicePlan& plan, std::string_view name, Math math, size_t tile) {
  const XPath path = broadcast_supported(plan) ? XPath::kBroadcast : XPath::kPortable;
  for (GemmVariant& variant : gemm_variants(plan, math, path)) {
    if (variant.name != name) continue;
    const bool has = variant.obstacle.empty() && tile < variant.tiles.size();
    variant.tiles = has ? std::vector{variant.tiles[tile]} : std::vector<GemmTile>{};
    return variant;
  }
  return {};
}

LinearVariant case_variant(std::string name, Math math, size_t tile) {
  return {
      .name = tile == 0 ? name : fmt::format("{} tile {}", name, tile),
      .math = math,
      .planner = [=](OpBed& bed, const WeightType& type)
          -> Result<std::function<void(vk::Recorder&, const LinearArgs&)>> {
        const GemmVariant variant = only(bed.device()->plan(), name, math, tile);
        PUMICE_TRY(const Gemm op, Gemm::plan(bed.pipelines(), type, std::span(&variant, 1)));
        return std::function(
            [op](vk::Recorder& recorder, const LinearArgs& args) { op.record(recorder, args); });
      },
      .supported =
          [=](const DevicePlan& plan, const WeightType& type) {
            return !only(plan, name, math, tile).tiles.empty() &&
                   find_spirv(linear_module_name("gemm", type, name)).ok();
          },
  };
}

}  // namespace

std::vector<OpCase> gemm_cases() {
  constexpr LinearShape kShapes[] = {{1, 1, 32},     {3, 7, 64},     {5, 32, 100},  {9, 33, 96},
                                     {15, 100, 512}, {16, 512, 256}, {17, 65, 172}, {31, 33, 4096},
                                     {33, 7, 512},   {129, 257, 256}};
  const LinearVariant variants[] = {
      case_variant("shared", Math::kF32, 0), case_variant("broadcast", Math::kF32, 0),
      case_variant("matrix2", Math::kF16, 0), case_variant("matrix2", Math::kF16, 1)};
  std::vector<OpCase> cases = linear_cases_of("gemm", kShapes, variants);
  std::ranges::move(gemm_i8_cases(), std::back_inserter(cases));
  return cases;
}

}  // namespace pumice::ops
