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
  if (ops::tuned_x_path(device.plan()) == ops::XPath::kPortable) {
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
