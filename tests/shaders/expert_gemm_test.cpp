// Products of experts' pairs in tiles: what a pair gives does not depend on the other pairs.
#include "shaders/expert_gemm/expert_gemm.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "shaders/common/linear_cases.hpp"
#include "shaders/spirv.hpp"
#include "tests/gpu_fixture.hpp"

namespace pumice::ops {
namespace {

constexpr uint32_t kExperts = 5;
constexpr uint32_t kUsed = 2;
constexpr uint32_t kExpertRows = 61;
constexpr uint32_t kExpertOutputs = 37;
constexpr uint32_t kExpertInputs = 256;

class ExpertGemmTest : public ::testing::Test {
 protected:
  void SetUp() override {
    device_ = test::GpuEnvironment::device();
    if (!device_) GTEST_SKIP() << "no usable Vulkan device";
    pipelines_ = std::make_unique<vk::PipelineLibrary>(device_, "", spirv_hash());
    op_.emplace(*ExpertGemm::plan(*pipelines_, kTypes, Math::kF32, tuned_x_route(device_->plan())));
    ASSERT_TRUE(pipelines_->compile().ok());
    bed_ = std::make_unique<OpBed>(device_, *pipelines_);
    weights_ = *upload_weights(*bed_, kSources, device_->plan().slab_bytes);
  }

  /// What rows of x give whose experts are routes[2 * row] and routes[2 * row + 1].
  std::vector<float> products(const std::vector<float>& x, const std::vector<uint32_t>& experts) {
    const auto rows = static_cast<uint32_t>(x.size() / kExpertInputs);
    std::vector<uint32_t> routes;
    for (const uint32_t expert : experts) routes.insert(routes.end(), {expert, 0});
    const vk::BufferRange x_range = *bed_->input(x);
    const vk::BufferRange routes_range = *bed_->input(routes);
    ExpertGemm::Groups groups{.rows = rows, .n_used = kUsed, .n_experts = kExperts};
    groups.range = *bed_->output(op_->range_bytes(groups));
    const vk::BufferRange y = *bed_->output(uint64_t{rows} * kUsed * kExpertOutputs * 4);
    vk::Recorder recorder(device_);
    op_->record_groups(recorder, routes_range, groups);
    op_->record(recorder, {.weights = weights_->matrix,
                           .x = x_range,
                           .x_stride = kExpertInputs,
                           .groups = groups,
                           .y = y,
                           .y_stride = kExpertOutputs});
    EXPECT_TRUE(vk::run(*device_, *recorder.finish()).ok());
    const std::vector<std::byte> bytes = *vk::download(device_, y);
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  const RandomWeights random_{weight_type("Q4_K"), kExperts* kExpertOutputs, kExpertInputs, 1};
  const WeightSource kSources[1] = {random_.source()};
  const WeightType* const kTypes[1] = {random_.type};
  std::shared_ptr<vk::Device> device_;
  std::unique_ptr<vk::PipelineLibrary> pipelines_;
  std::optional<ExpertGemm> op_;
  std::unique_ptr<OpBed> bed_;
  std::shared_ptr<UploadedWeights> weights_;
};

TEST_F(ExpertGemmTest, APairsBitsAreItsOwn) {
  const std::vector<float> x = OpBed::normal_floats(size_t{kExpertRows} * kExpertInputs, 1);
  std::vector<uint32_t> experts;
  for (uint32_t row = 0; row < kExpertRows; ++row) {
    experts.push_back(row * row % kExperts);
    experts.push_back((experts.back() + 1 + row % 3) % kExperts);
  }
  const std::vector<float> all = products(x, experts);
  for (const auto& [first, n] : {std::pair{0u, 1u}, {7u, 23u}, {40u, 21u}}) {
    const std::vector<float> some =
        products({&x[size_t{first} * kExpertInputs],
                  &x[size_t{first} * kExpertInputs] + size_t{n} * kExpertInputs},
                 {&experts[size_t{first} * kUsed], &experts[size_t{first} * kUsed] + n * kUsed});
    EXPECT_EQ(std::memcmp(some.data(), &all[size_t{first} * kUsed * kExpertOutputs],
                          some.size() * sizeof(float)),
              0)
        << n << " rows from " << first;
  }
}

/// However uneven the routing: all pairs of one expert, and others without any.
TEST_F(ExpertGemmTest, ExpertsMayTakeEveryPair) {
  const std::vector<float> x = OpBed::normal_floats(size_t{kExpertRows} * kExpertInputs, 1);
  for (const uint32_t expert : {0u, kExperts - 1}) {
    const std::vector<float> y =
        products(x, std::vector<uint32_t>(size_t{kExpertRows} * kUsed, expert));
    for (uint32_t row = 0; row < kExpertRows; ++row) {  // both ranks are the same product
      const float* const first = &y[size_t{row} * kUsed * kExpertOutputs];
      EXPECT_EQ(std::memcmp(first, first + kExpertOutputs, kExpertOutputs * sizeof(float)), 0)
          << row;
    }
  }
}

}  // namespace
}  // namespace pumice::ops
