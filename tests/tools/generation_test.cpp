// Requests of the command line end with the call that follows them.
#include "tools/generation.hpp"

#include <filesystem>
#include <memory>
#include <utility>

#include "tests/gpu_fixture.hpp"
#include "tests/shared_data.hpp"

namespace pumice::tools {
namespace {

class Generate : public ::testing::Test {
 protected:
  void SetUp() override {
    PUMICE_REQUIRE_DEVICE(device);
    const auto path = test::shared_path("models/stories260K.gguf");
    if (!std::filesystem::exists(path)) GTEST_SKIP() << "no shared data: " << path;
    const Result<GgufFile> file = GgufFile::open(path);
    ASSERT_TRUE(file.ok()) << file.error().message;
    Result<host::ModelTexts> texts = host::ModelTexts::read(*file);
    ASSERT_TRUE(texts.ok()) << texts.error().message;
    auto owner = std::make_shared<host::DeviceOwner>(
        device, host::OpenOptions(),
        [device]() -> Result<std::shared_ptr<vk::Device>> { return device; });
    auto model = host::ModelOwner::load(std::move(owner), {.path = path}, *file, *std::move(texts));
    ASSERT_TRUE(model.ok()) << model.error().message;
    auto engine = (*model)->opened().make_engine({.context_tokens = 64, .greedy_only = true});
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    engine_ = engine->get();
    host_ = std::make_unique<host::Host>(
        *std::move(model), *std::move(engine),
        host::HostOptions{.retry = {.first_pause_s = 0.01, .most_tries = 3}});
  }

  /// `n_faults` stages fail after so many.
  Result<Generation> answer(int stages_before_fault, int n_faults = 1,
                            ErrorCode code = ErrorCode::kInternal) {
    engine_->set_hooks({.at_stage = [&, code](StepStage) -> Status {
      if (stages_before_fault-- > 0 || n_faults-- <= 0) return {};
      return make_error(code, "a fault for the test");
    }});
    PUMICE_TRY(const host::Submitted request,
               host_->submit(host::ConversationId::kNone,
                             {.tokens = {1, 403, 407, 261}, .max_new_tokens = 12}));
    Result<Generation> generation =
        follow(*host_, request, [&](std::string_view) { return listens_; });
    engine_->set_hooks({});
    return generation;
  }

  std::unique_ptr<host::Host> host_;
  Engine* engine_ = nullptr;
  bool listens_ = true;
};

TEST_F(Generate, GoesOnAfterALostDevice) {
  const auto undisturbed = answer(0, 0);
  ASSERT_TRUE(undisturbed.ok()) << undisturbed.error().message;
  EXPECT_EQ(undisturbed->tokens.size(), 12u);
  for (const int stages : {0, 1, 8}) {
    const auto again = answer(stages, 1, ErrorCode::kDeviceLost);
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(again->text, undisturbed->text);
    EXPECT_EQ(again->tokens, undisturbed->tokens);
  }
  const auto never = answer(0, 100, ErrorCode::kDeviceLost);
  ASSERT_FALSE(never.ok());
  EXPECT_EQ(never.error().code, ErrorCode::kDeviceLost);
  EXPECT_TRUE(engine_->idle());
}

TEST_F(Generate, AfterAFailedStepNothingOfTheRequestIsLeftAndTheNextOneIsAnswered) {
  const auto undisturbed = answer(0, 0);
  ASSERT_TRUE(undisturbed.ok()) << undisturbed.error().message;
  for (const int stages : {0, 1, 8}) {
    const auto failed = answer(stages);
    ASSERT_FALSE(failed.ok());
    EXPECT_EQ(failed.error().message, "a fault for the test");
    EXPECT_TRUE(engine_->idle()) << "a request outlives the call that followed it";
    const auto next = answer(0, 0);
    ASSERT_TRUE(next.ok()) << next.error().message;
    EXPECT_EQ(next->text, undisturbed->text);
  }
}

TEST_F(Generate, WhoDoesNotListenAnyMoreEndsIt) {
  listens_ = false;
  const auto left = answer(0, 0);
  ASSERT_TRUE(left.ok()) << left.error().message;
  EXPECT_EQ(left->report.end_reason, EndReason::kCancelled);
  EXPECT_FALSE(left->interrupted);
  EXPECT_LT(left->tokens.size(), 12u);
  EXPECT_TRUE(engine_->idle());
}

}  // namespace
}  // namespace pumice::tools
