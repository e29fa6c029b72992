// Requests of the command line end with the call that made them.
#include "tools/generation.hpp"

#include "models/vocabulary_loader.hpp"
#include "tests/engine/engine_fixture.hpp"

namespace pumice::tools {
namespace {

class Generate : public test::EngineTest {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    if (IsSkipped()) return;
    const auto path = test::shared_path("models/stories260K.gguf");
    if (!std::filesystem::exists(path)) GTEST_SKIP() << "no shared data: " << path;
    const Result<GgufFile> file = GgufFile::open(path);
    ASSERT_TRUE(file.ok()) << file.error().message;
    Result<Tokenizer> loaded = load_tokenizer(*file);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    tokenizer_ = std::make_shared<const Tokenizer>(std::move(loaded).value());
    model_ = load(path);
    engine_ = make_engine(model_, {.context_tokens = 64, .greedy_only = true});
    ASSERT_NE(engine_, nullptr);
  }
  void TearDown() override {
    engine_.reset();
    model_.reset();
  }

  /// `n_faults` stages fail after so many.
  Result<Generation> answer(int stages_before_fault, int n_faults = 1,
                            ErrorCode code = ErrorCode::kInternal, const Recover& recover = {}) {
    engine_->set_hooks({.fault = [&, code](StepStage) -> Status {
      if (stages_before_fault-- > 0 || n_faults-- <= 0) return {};
      return make_error(code, "a fault for the test");
    }});
    return generate(
        *engine_, {.prompt = {1, 403, 407, 261}, .max_new_tokens = 12, .tokenizer = tokenizer_},
        [](std::string_view) { return true; }, recover);
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::shared_ptr<const Model> model_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(Generate, GoesOnAfterALostDevice) {
  const auto undisturbed = answer(0, 0);
  ASSERT_TRUE(undisturbed.ok()) << undisturbed.error().message;
  int n_opened = 0;
  const auto open = [&]() -> Result<host::OpenedModel> {
    ++n_opened;
    return host::OpenedModel{
        .device = pipelines_->device(), .pipelines = pipelines_, .model = model_};
  };
  host::Recovery recovery(*open(), open, {.attempts = 1, .losses_in_a_row = 3});
  for (const int stages : {0, 1, 8}) {
    n_opened = 0;
    const auto again = answer(stages, 1, ErrorCode::kDeviceLost, recover_by(recovery, *engine_));
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(again->text, undisturbed->text);
    EXPECT_EQ(n_opened, 1);
  }
  n_opened = 0;
  const auto never = answer(0, 100, ErrorCode::kDeviceLost, recover_by(recovery, *engine_));
  ASSERT_FALSE(never.ok());
  EXPECT_EQ(never.error().code, ErrorCode::kDeviceLost);
  EXPECT_LE(n_opened, 3) << "it is opened for ever";
  EXPECT_TRUE(engine_->idle());
}

TEST_F(Generate, AfterAFailedStepNothingOfTheRequestIsLeftAndTheNextOneIsAnswered) {
  const auto undisturbed = answer(0, 0);
  ASSERT_TRUE(undisturbed.ok()) << undisturbed.error().message;
  for (const int stages : {0, 1, 8}) {
    EXPECT_FALSE(answer(stages).ok());
    EXPECT_TRUE(engine_->idle()) << "a request outlives the call that made it";
    const auto next = answer(0, 0);
    ASSERT_TRUE(next.ok()) << next.error().message;
    EXPECT_EQ(next->text, undisturbed->text);
  }
}

}  // namespace
}  // namespace pumice::tools
