// Requests of the command line end with the call that made them.
#include "tools/generation.hpp"

#include "models/vocabulary_loader.hpp"
#include "tests/engine/engine_fixture.hpp"

namespace pumice::tools {
namespace {

class Generate : public test::EngineTest {};

TEST_F(Generate, AfterAFailedStepNothingOfTheRequestIsLeftAndTheNextOneIsAnswered) {
  const auto path = test::shared_path("models/stories260K.gguf");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no shared data: " << path;
  const Result<GgufFile> file = GgufFile::open(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  Result<Tokenizer> loaded = load_tokenizer(*file);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  const auto tokenizer = std::make_shared<const Tokenizer>(std::move(loaded).value());
  const auto engine = make_engine(load(path), {.context_tokens = 64, .greedy_only = true});
  ASSERT_NE(engine, nullptr);
  const auto answer = [&](int steps_before_fault) {
    engine->set_hooks({.fault = [=](StepStage) mutable -> Status {
      if (steps_before_fault-- != 0) return {};
      return make_error(ErrorCode::kInternal, "a fault for the test");
    }});
    return generate(*engine,
                    {.prompt = {1, 403, 407, 261}, .max_new_tokens = 12, .tokenizer = tokenizer},
                    [](std::string_view) { return true; });
  };
  const auto undisturbed = answer(-1);
  ASSERT_TRUE(undisturbed.ok()) << undisturbed.error().message;
  for (const int steps : {0, 1, 8}) {
    EXPECT_FALSE(answer(steps).ok());
    EXPECT_TRUE(engine->idle()) << "a request outlives the call that made it";
    const auto next = answer(-1);
    ASSERT_TRUE(next.ok()) << next.error().message;
    EXPECT_EQ(next->text, undisturbed->text);
  }
}

}  // namespace
}  // namespace pumice::tools
