// Vectors on a device that is lost amid them.
#include "host/lasting_embedder.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "format/gguf.hpp"
#include "models/embedding.hpp"
#include "tests/gpu_fixture.hpp"
#include "tests/shared_data.hpp"
#include "vk/functions.hpp"

namespace pumice::host {
namespace {

using Vectors = std::vector<std::vector<float>>;

/// A driver whose devices, each with what is submitted next, are lost so many times. Entry points are
/// plain functions.
class LosingDriver {
 public:
  static void intercept(vk::DeviceFunctions& fn) {
    real() = fn.vkQueueSubmit2;
    fn.vkQueueSubmit2 = submit;
  }
  static std::atomic<int>& losses() {
    static std::atomic<int> n = 0;
    return n;
  }

 private:
  static PFN_vkQueueSubmit2& real() {
    static PFN_vkQueueSubmit2 function = nullptr;
    return function;
  }
  static VkResult VKAPI_CALL submit(VkQueue queue, uint32_t n, const VkSubmitInfo2* infos,
                                    VkFence fence) {
    if (losses() > 0) {
      --losses();
      return VK_ERROR_DEVICE_LOST;
    }
    return real()(queue, n, infos, fence);
  }
};

class LastingEmbedderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    PUMICE_REQUIRE_DEVICE(device);
    const auto path = test::shared_path("models/stories260K.gguf");
    if (!std::filesystem::exists(path)) GTEST_SKIP() << "no shared data: " << path;
    LosingDriver::losses() = 0;
    const auto open_it = [this]() -> Result<std::shared_ptr<vk::Device>> {
      ++n_opened_;
      return test::GpuEnvironment::open(
          [&](const vk::DeviceSnapshot& snapshot) {
            return vk::plan_device(snapshot, test::GpuEnvironment::device()->plan().limits);
          },
          LosingDriver::intercept);
    };
    const Result<GgufFile> file = GgufFile::open(path);
    ASSERT_TRUE(file.ok()) << file.error().message;
    Result<ModelTexts> texts = ModelTexts::read(*file);
    ASSERT_TRUE(texts.ok()) << texts.error().message;
    Result<Program> program = build_embedding_program(*file, Pooling::kMean);
    ASSERT_TRUE(program.ok()) << program.error().message;
    const auto plan = ModelPlan::of_program(*file, *std::move(program));
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    auto opened = open_it();
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    auto owner = std::make_shared<DeviceOwner>(*std::move(opened), OpenOptions(), open_it);
    auto model = ModelOwner::load(std::move(owner), {.path = path, .plan = *plan}, *file,
                                  *std::move(texts), {}, *plan);
    ASSERT_TRUE(model.ok()) << model.error().message;
    auto embedder = LastingEmbedder::create(*std::move(model), {.text_tokens = 32});
    ASSERT_TRUE(embedder.ok()) << embedder.error().message;
    embedder_ = *std::move(embedder);
  }

  std::unique_ptr<LastingEmbedder> embedder_;
  int n_opened_ = 0;
  const std::vector<std::vector<TokenId>> tokens_ = {{1, 5, 6, 7}, {1, 9}};
};

TEST_F(LastingEmbedderTest, TextsBeginAnewOnAnotherDeviceWhenTheirsIsLost) {
  const Result<Vectors> before = embedder_->embed(tokens_);
  ASSERT_TRUE(before.ok()) << before.error().message;
  LosingDriver::losses() = 1;
  const Result<Vectors> after = embedder_->embed(tokens_);
  ASSERT_TRUE(after.ok()) << after.error().message;
  EXPECT_EQ(*after, *before);
  EXPECT_FALSE(embedder_->is_lost());
  EXPECT_EQ(n_opened_, 2);
}

TEST_F(LastingEmbedderTest, ALossThatLastsIsAnErrorAndTheNextCallTriesAgain) {
  const Result<Vectors> before = embedder_->embed(tokens_);
  ASSERT_TRUE(before.ok()) << before.error().message;
  LosingDriver::losses() = 1000;
  const Result<Vectors> lost = embedder_->embed(tokens_);
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.error().code, ErrorCode::kDeviceLost);
  EXPECT_TRUE(embedder_->is_lost());
  LosingDriver::losses() = 0;
  const Result<Vectors> after = embedder_->embed(tokens_);
  ASSERT_TRUE(after.ok()) << after.error().message;
  EXPECT_EQ(*after, *before);
  EXPECT_FALSE(embedder_->is_lost());
}

}  // namespace
}  // namespace pumice::host
