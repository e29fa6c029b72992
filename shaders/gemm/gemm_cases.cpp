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

Result<PreparedOp> prepare_i8(OpBed& bed, const WeightType& type, const LinearShape& shape) {
  const RandomWeights weights(type, shape.n, shape.k, 1);
  const PaddedInput input(shape.rows, shape.k);
  const QuantizedReference quantized(input.values, shape.rows, shape.k, input.stride);
  const WeightSource source = weights.source();
  PUMICE_TRY(const auto uploaded,
             upload_weights(bed, std::span(&source, 1), bed.device()->plan().slab_bytes));
  PUMICE_TRY(const vk::BufferRange x, bed.input(quantized.words));
  PUMICE_TRY(const vk::BufferRange y_range, bed.output(uint64_t{shape.rows} * shape.n * 4));
  const std::vector<GemmVariant> variants =
      gemm_variants(bed.device()->plan(), Math::kI8, XRoute::kPortable);
  PUMICE_TRY(const Gemm op, Gemm::plan(bed.pipelines(), type, variants));
  Expectation y{.name = "y", .output = y_range, .reference = {}, .bound = {}, .words = {}};
  quantized_linear_reference(quantized, weights, y);
  return PreparedOp{.record =
                        [=](vk::Recorder& recorder) {
                          op.record(recorder, {.weights = uploaded->matrix,
                                               .x = x,
                                               .x_stride = shape.k,
                                               .y = y_range,
                                               .y_stride = shape.n,
                                               .rows = shape.rows});
                        },
                    .expected = {std::move(y)}};
}

std::vector<OpCase> i8_cases() {
  constexpr LinearShape kShapes[] = {{1, 1, 256},     {3, 7, 512},           {9, 33, 768, true},
                                     {31, 65, 4096},  {33, 100, 1024, true}, {129, 257, 256},
                                     {17, 512, 1280}, {40, 130, 32}};
  std::vector<OpCase> cases;
  for (const WeightType* type : linear_types()) {
    if (!find_spirv(linear_module_name("gemm", *type, "i8")).ok()) continue;
    for (LinearShape shape : kShapes) {
      if (!shape.every_type && !takes_all_shapes(*type)) continue;
      shape.k = (shape.k + type->block_elements - 1) / type->block_elements * type->block_elements;
      cases.push_back(
          {.op = "gemm",
           .name = fmt::format("{} i8 rows={} n={} k={}", type->name, shape.rows, shape.n, shape.k),
           .prepare = [=](OpBed& bed) { return prepare_i8(bed, *type, shape); },
           .supported = [](const vk::DevicePlan& plan) { return plan.features.integer_dot; }});
    }
  }
  return cases;
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
  std::ranges::move(i8_cases(), std::back_inserter(cases));
  return cases;
}

}  // namespace pumice::ops
