// What x in two planes of bytes costs in precision, as a share of what is computed (docs/PERFORMANCE.md).
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "shaders/common/linear_cases.hpp"
#include "shaders/gemv/gemv_cases.hpp"
#include "shaders/spirv.hpp"
#include "tests/gpu_fixture.hpp"

namespace pumice::ops {
namespace {

constexpr uint32_t kPlanesRows = 8;
constexpr uint32_t kPlanesOutputs = 64;
constexpr uint32_t kPlanesInputs = 4096;

using Sampler = float (*)(std::mt19937&);

float gaussian(std::mt19937& engine) { return std::normal_distribution<float>()(engine); }
/// One in 64 is 30 times as large.
float with_outliers(std::mt19937& engine) {
  const float factor = engine() % 64 == 0 ? 30.0f : 1.0f;
  return factor * gaussian(engine);
}
float student_of_three(std::mt19937& engine) {
  return std::student_t_distribution<float>(3)(engine);
}

/// Of products on the device, as a share of the squares of what fp64 makes of unquantised x.
double error_of_planes(OpBed& bed, const RandomWeights& weights, const std::vector<float>& x) {
  const WeightSource source = weights.source();
  const auto uploaded = *upload_weights(bed, {&source, 1}, 1 << 24);
  const auto x_range = *bed.input(x);
  const auto planes = *bed.output(PlanesOfX::size_bytes(kPlanesRows, kPlanesInputs));
  const auto y_range = *bed.output(uint64_t{kPlanesRows} * kPlanesOutputs * 4);
  const auto quantize_x = *QuantizeX::plan(bed.pipelines(), XForm::kPlanes);
  const auto gemv = *Gemv::plan(bed.pipelines(), *weights.type, GemvKernel::kPlanes);
  EXPECT_TRUE(bed.pipelines().compile().ok());
  vk::Recorder recorder(bed.device());
  quantize_x.record(recorder, {.x = x_range,
                               .x_stride = kPlanesInputs,
                               .rows = kPlanesRows,
                               .k = kPlanesInputs,
                               .y = planes});
  const auto scratch =
      *bed.output(std::max<uint64_t>(gemv.scratch_bytes(uploaded->matrix, kPlanesRows), 16));
  gemv.record(recorder, {.weights = uploaded->matrix,
                         .x = planes,
                         .x_stride = kPlanesInputs,
                         .y = y_range,
                         .y_stride = kPlanesOutputs,
                         .rows = kPlanesRows,
                         .scratch = scratch});
  EXPECT_TRUE(vk::run(*bed.device(), *recorder.finish()).ok());
  const std::vector<std::byte> bytes = *vk::download(bed.device(), y_range);
  std::vector<float> y(bytes.size() / 4);
  std::memcpy(y.data(), bytes.data(), bytes.size());
  double errors = 0;
  double squares = 0;
  for (uint32_t row = 0; row < kPlanesRows; ++row) {
    for (uint32_t n = 0; n < kPlanesOutputs; ++n) {
      double sum = 0;
      for (uint32_t i = 0; i < kPlanesInputs; ++i) {
        sum += double{x[row * kPlanesInputs + i]} * weights.values[n * kPlanesInputs + i];
      }
      const double error = y[row * kPlanesOutputs + n] - sum;
      errors += error * error;
      squares += sum * sum;
    }
  }
  return errors / squares;
}

TEST(GemvPlanes, MissUnquantisedProductsByLessThanABoundThatModelsKeep) {
  PUMICE_REQUIRE_DEVICE(device);
  constexpr std::pair<const char*, Sampler> kInputs[] = {
      {"gaussian", gaussian}, {"outliers", with_outliers}, {"t3", student_of_three}};
  for (const char* name : {"Q4_K", "Q6_K", "Q8_0"}) {
    const WeightType& type = weight_type(name);
    if (!gemv_runs(device->plan(), GemvKernel::kPlanes, type)) {
      GTEST_SKIP() << "this device or build lacks the kernel";
    }
    const RandomWeights weights(type, kPlanesOutputs, kPlanesInputs, 1);
    for (const auto& [kind, sample] : kInputs) {
      std::mt19937 engine(2);
      std::vector<float> x(size_t{kPlanesRows} * kPlanesInputs);
      for (float& value : x) value = sample(engine);
      vk::PipelineLibrary pipelines(device, "", spirv_hash());
      OpBed bed(device, pipelines);
      const double error = error_of_planes(bed, weights, x);
      EXPECT_LT(error, 1e-8) << name << ' ' << kind;
      fmt::print("{} {}: {:.1e}\n", name, kind, error);
    }
  }
}

}  // namespace
}  // namespace pumice::ops
