// Whose keys and values a prompt cache file may give to whom.
#include <unistd.h>

#include "tests/engine/synthetic_fixture.hpp"

namespace pumice {
namespace {

class PromptCache : public test::SyntheticEngineTest {
 protected:
  Result<std::unique_ptr<Engine>> open(EngineOptions options) const {
    options.context_tokens = 128;
    options.greedy_only = true;
    options.cache_file = file_.path();
    return Engine::create(pipelines_, model_, options);
  }

  /// Write the file with these options.
  void write(const EngineOptions& options) {
    const auto engine = open(options);
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    greedy(**engine, tokens(70, 1), 2);
    ASSERT_TRUE((*engine)->save_prompt_cache().ok());
  }
  void expect_reused(const EngineOptions& options) {
    const auto engine = open(options);
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    const uint64_t rows_before = (*engine)->dispatched_rows();
    greedy(**engine, tokens(70, 1), 2);
    EXPECT_LT((*engine)->dispatched_rows() - rows_before, 20u);
  }
  void expect_refused(const EngineOptions& options, const std::string& why) {
    const auto engine = open(options);
    ASSERT_FALSE(engine.ok()) << why;
    EXPECT_EQ(engine.error().code, ErrorCode::kBadFile);
    for (const char* words : {"another model", "--math", "name another file"}) {
      EXPECT_NE(engine.error().message.find(words), std::string::npos) << engine.error().message;
    }
  }
  bool has(ops::Math math) const {
    return Engine::create(pipelines_, model_, {.math = math, .context_tokens = 32}).ok();
  }

  const test::TemporaryFile file_{std::filesystem::temp_directory_path() /
                                  ("pumice-prompt-cache-" + std::to_string(::getpid()) + ".kv")};
};

TEST_F(PromptCache, HasNothingThatIsStillOnItsWay) {
  const std::vector<TokenId> prompt = tokens(90, 4);
  const auto alone = make_engine(model_, {.context_tokens = 128, .greedy_only = true});
  const std::vector<TokenId> expected = greedy(*alone, prompt, 4);
  const EngineOptions small{.kv_blocks = 7,
                            .token_budget = 32,
                            .chunk_tokens = 32,
                            .cache_host_bytes = uint64_t{8} << 20};
  uint32_t n_saved = 0;
  for (int n_polls = 0; n_polls < 3; ++n_polls) {
    const auto engine = open(small);
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    greedy(**engine, prompt, 1);
    // Room for one of the prompts: the blocks of the first go to host memory.
    ASSERT_TRUE((*engine)->submit({.prompt = tokens(90, 1), .max_new_tokens = 1}).ok());
    for (int i = 0; i < 100 && !(*engine)->moves_blocks(); ++i) {
      ASSERT_TRUE((*engine)->poll(1e-9).ok());
    }
    for (int i = 0; i < n_polls; ++i) ASSERT_TRUE((*engine)->poll(1e-9).ok());
    n_saved += (*engine)->moves_blocks() ? 1 : 0;
    const Status saved = (*engine)->save_prompt_cache();
    ASSERT_TRUE(saved.ok()) << saved.error().message;
    const auto next = open({});
    ASSERT_TRUE(next.ok()) << next.error().message;
    EXPECT_EQ(greedy(**next, prompt, 4), expected) << n_polls;
    std::filesystem::remove(file_.path());
  }
  EXPECT_GT(n_saved, 0u) << "no bytes moved while it was saved";
}

TEST_F(PromptCache, IsRefusedByAModelOfTheSameShapeWithOtherWeights) {
  write({});
  expect_reused({});
  const test::TemporaryFile other = test::write_synthetic_model({.seed = 2});
  model_ = load(other.path());
  expect_refused({}, "other weights");
}

TEST_F(PromptCache, IsRefusedByAnotherArithmetic) {
  const test::TemporaryFile quantised = test::write_synthetic_model({.type = &weight_type("Q8_0")});
  model_ = load(quantised.path());
  int n_others = 0;
  for (const ops::Math other : {ops::Math::kF16, ops::Math::kI8}) {
    if (!has(other)) continue;
    ++n_others;
    write({.math = ops::Math::kF32});
    expect_refused({.math = other}, "computed in fp32");
    std::filesystem::remove(file_.path());
    write({.math = other});
    expect_reused({.math = other});
    expect_refused({.math = ops::Math::kF32}, "not computed in fp32");
    std::filesystem::remove(file_.path());
  }
  if (n_others == 0) GTEST_SKIP() << "this device or build has fp32 only";
}

TEST_F(PromptCache, IsAboutTheArithmeticThatAutoCameToBe) {
  const bool matrices =
      pipelines_->device()->plan().device_class == vk::DeviceClass::kGpu && has(ops::Math::kF16);
  write({.math = ops::Math::kAuto});
  expect_reused({.math = matrices ? ops::Math::kF16 : ops::Math::kF32});
}

TEST_F(PromptCache, IsBoundToKernelsOnlyWhereBitsArePromised) {
  const auto& device = *pipelines_->device();
  if (ops::tuned_x_route(device.plan()) == ops::XRoute::kPortable) {
    GTEST_SKIP() << "without subgroups this device computes the same way";
  }
  const auto limits = vk::parse_plan_options("no-subgroup");
  ASSERT_TRUE(limits.ok()) << limits.error().message;
  const auto limited = test::GpuEnvironment::open(
      [&](const vk::DeviceSnapshot& snapshot) { return vk::plan_device(snapshot, *limits); });
  ASSERT_TRUE(limited.ok()) << limited.error().message;
  const test::TemporaryFile model = test::write_synthetic_model({});
  for (const bool invariant : {false, true}) {
    const EngineOptions options{.math = ops::Math::kF32, .invariant = invariant};
    write(options);
    expect_reused(options);
    if (invariant) expect_refused({.math = ops::Math::kF32}, "without --invariant");
    {
      const OnDevice on_limited(*limited);
      model_ = load(model.path());
      if (invariant) {
        expect_refused(options, "other kernels");
      } else {
        expect_reused(options);
      }
    }
    model_ = load(model.path());
    std::filesystem::remove(file_.path());
  }
}

}  // namespace
}  // namespace pumice
