#include <algorithm>
#include <cmath>
#include <optional>

#include "shaders/common/linear_cases.hpp"
#include "shaders/gemm/gemm.hpp"
#include "shaders/quantize_x/quantize_x.hpp"
#include "shaders/quantize_x/quantized_reference.hpp"
#include "shaders/spirv.hpp"

namespace pumice::ops {
namespace {

/// A variant and one of its tiles.
struct Tested {
  std::string_view name;
  Math math = Math::kF32;
  size_t tile = 0;
  bool gpu_tiles = false;  ///< what a GPU like the device would use; F16 only: others compile long
};

/// The variant with only that tile; without tiles where the device has not.
GemmVariant only(vk::DevicePlan plan, const Tested& tested) {
  const XRoute path = broadcast_supported(plan) ? XRoute::kBroadcast : XRoute::kPortable;
  if (tested.gpu_tiles) plan.device_class = vk::DeviceClass::kGpu;
  for (GemmVariant& variant : gemm_variants(plan, tested.math, path)) {
    if (variant.name != tested.name) continue;
    const bool has = tested.tile < variant.tiles.size();
    variant.tiles = has ? std::vector{variant.tiles[tested.tile]} : std::vector<GemmTile>{};
    return variant;
  }
  return {};
}

LinearVariant case_variant(const Tested& tested) {
  std::function<uint64_t(const LinearShape&)> scratch_bytes;
  if (tested.name == "matrix") {
    scratch_bytes = [](const LinearShape& shape) {
      return HalvedX::size_bytes(shape.rows, shape.k);
    };
  }
  const std::string name =
      fmt::format("{}{}{}", tested.name, tested.gpu_tiles ? " as on a gpu" : "",
                  tested.tile == 0 ? "" : fmt::format(" tile {}", tested.tile));
  return {
      .name = name,
      .math = tested.math,
      .planner = [=](OpBed& bed, const WeightType& type)
          -> Result<std::function<void(vk::Recorder&, const LinearArgs&)>> {
        const GemmVariant variant = only(bed.device()->plan(), tested);
        PUMICE_TRY(const Gemm op, Gemm::plan(bed.pipelines(), type, std::span(&variant, 1)));
        std::optional<QuantizeX> quantize_x;
        if (op.x_form() != XForm::kFloats) {
          PUMICE_TRY(quantize_x, QuantizeX::plan(bed.pipelines(), op.x_form()));
        }
        return std::function([=](vk::Recorder& recorder, const LinearArgs& args) {
          LinearArgs placed = args;
          if (quantize_x) {
            quantize_x->record(recorder, {.x = args.x,
                                          .x_stride = args.x_stride,
                                          .rows = args.rows,
                                          .k = args.weights.n_cols,
                                          .y = args.scratch});
            placed.x = args.scratch;
          }
          op.record(recorder, placed);
        });
      },
      .supported =
          [=](const vk::DevicePlan& plan, const WeightType& type) {
            const bool wanted = !tested.gpu_tiles ||
                                (plan.device_class == vk::DeviceClass::kCpu && type.name == "F16");
            return wanted && !only(plan, tested).tiles.empty() &&
                   find_spirv(linear_module_name("gemm", type, tested.name)).ok();
          },
      .scratch_bytes = scratch_bytes,
  };
}

LinearVariant of_integers() {
  return {.name = "i8",
          .math = Math::kI8,
          .planner = [](OpBed& bed, const WeightType& type)
              -> Result<std::function<void(vk::Recorder&, const LinearArgs&)>> {
            const std::vector<GemmVariant> variants =
                gemm_variants(bed.device()->plan(), Math::kI8, XRoute::kPortable);
            PUMICE_TRY(const Gemm op, Gemm::plan(bed.pipelines(), type, variants));
            return std::function(
                [=](vk::Recorder& recorder, const LinearArgs& args) { op.record(recorder, args); });
          },
          .x = XForm::kInt8,
          .x_is_given = true,
          .supported =
              [](const vk::DevicePlan& plan, const WeightType& type) {
                return plan.features.integer_dot &&
                       find_spirv(linear_module_name("gemm", type, "i8")).ok();
              }};
}

}  // namespace

std::vector<OpCase> gemm_cases() {
  constexpr LinearShape kShapes[] = {
      {1, 1, 32},     {3, 7, 64},    {5, 32, 100},   {9, 33, 96, true},  {15, 100, 512},
      {16, 512, 256}, {17, 65, 172}, {31, 33, 4096}, {33, 7, 512, true}, {129, 257, 256}};
  std::vector<LinearVariant> variants;
  for (const Tested& tested :
       {Tested{"shared"}, Tested{"broadcast"}, Tested{"uniform"}, Tested{"matrix", Math::kF16},
        Tested{"matrix", Math::kF16, 1}, Tested{"matrix", Math::kF16, 1, true},
        Tested{"matrix2", Math::kF16}, Tested{"matrix2", Math::kF16, 1}}) {
    variants.push_back(case_variant(tested));
  }
  std::vector<OpCase> cases = linear_cases_of("gemm", kShapes, variants);
  constexpr LinearShape kIntegerShapes[] = {
      {1, 1, 256},           {3, 7, 512},     {9, 33, 768, true}, {31, 65, 4096},
      {33, 100, 1024, true}, {129, 257, 256}, {17, 512, 1280},    {40, 130, 32}};
  const LinearVariant integers = of_integers();
  std::ranges::move(linear_cases_of("gemm", kIntegerShapes, {&integers, 1}),
                    std::back_inserter(cases));
  return cases;
}

}  // namespace pumice::ops
