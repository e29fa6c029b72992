// The self-test on a device whose kernels are wrong on purpose: exactly those are found, and the
// ops go on without them.
#include "shaders/self_test.hpp"

#include <algorithm>

#include <gtest/gtest.h>

#include "shaders/flash_attention/flash_attention.hpp"
#include "shaders/gated_activation/gated_activation.hpp"
#include "shaders/spirv.hpp"
#include "tests/gpu_fixture.hpp"
#include "tests/shaders/wrong_kernel.hpp"

namespace pumice {
namespace {

using State = ModuleVerdict::State;
using Names = vk::PipelineLibrary::ModuleNames;

class SelfTestTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto device = test::GpuEnvironment::device()) {
      pipelines_ = std::make_unique<vk::PipelineLibrary>(device, "", spirv_hash());
    } else {
      GTEST_SKIP() << "no usable Vulkan device";
    }
  }

  void make_wrong(const std::string& module) {
    const std::vector<uint32_t> words = test::wrong_kernel(find_spirv(module)->words);
    ASSERT_FALSE(std::ranges::equal(words, find_spirv(module)->words)) << module << " has no fma";
    pipelines_->override_module(module, words);
  }

  /// Some cases of some ops, of those that the device and the build can run: whole self-tests take
  /// minutes on CPU drivers.
  std::vector<ops::OpCase> cases(const std::string& op, const std::string& words) const {
    std::vector<ops::OpCase> chosen = ops::all_op_cases();
    const vk::DevicePlan& plan = pipelines_->device()->plan();
    std::erase_if(chosen, [&](const ops::OpCase& test) {
      return test.op != op || test.name.find(words) == test.name.npos ||
             (test.supported && !test.supported(plan));
    });
    EXPECT_FALSE(chosen.empty()) << op << ' ' << words;
    return chosen;
  }
  static std::vector<ops::OpCase> both(std::vector<ops::OpCase> a,
                                       const std::vector<ops::OpCase>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }

  std::unique_ptr<vk::PipelineLibrary> pipelines_;
};

TEST_F(SelfTestTest, PassesWhatIsRightAndSaysWhatItDidNotRun) {
  const SelfTestResult result = run_self_test(*pipelines_, cases("gated_activation", ""), {});
  ASSERT_TRUE(result.status.ok()) << result.status.error().message;
  EXPECT_TRUE(result.errors.empty());
  EXPECT_EQ(result.n_cases, cases("gated_activation", "").size());
  EXPECT_EQ(result.verdict.modules.at("gated_activation"),
            (ModuleVerdict{State::kPassed, static_cast<uint32_t>(result.n_cases), ""}));
  EXPECT_EQ(result.verdict.modules.at("rms_norm").state, State::kNotRun);
  EXPECT_EQ(result.verdict.modules.size(), spirv_modules().size());
  EXPECT_EQ(result.verdict.running, "");
  EXPECT_TRUE(result.verdict.rejected().empty());
}

TEST_F(SelfTestTest, FindsExactlyTheModuleThatIsWrong) {
  make_wrong("gemv.f16.uniform");
  const SelfTestResult result = run_self_test(
      *pipelines_, both(cases("gemv", "F16 portable"), cases("gemv", "Q8_0 portable")), {});
  ASSERT_TRUE(result.status.ok()) << result.status.error().message;
  EXPECT_EQ(result.verdict.rejected(), Names{"gemv.f16.uniform"});
  const ModuleVerdict& wrong = result.verdict.modules.at("gemv.f16.uniform");
  EXPECT_NE(wrong.note.find("gemv F16 portable"), wrong.note.npos) << wrong.note;
  EXPECT_NE(wrong.note.find("expected"), wrong.note.npos) << wrong.note;
  EXPECT_EQ(result.verdict.modules.at("gemv.q8_0.uniform").state, State::kPassed);
  EXPECT_EQ(result.verdict.broken_families(), std::vector<std::string>{"gemv.f16"});
}

TEST_F(SelfTestTest, BlamesTheReductionOfASplitContextNotTheAttentionBeforeIt) {
  make_wrong("attention_reduce");
  const SelfTestResult result =
      run_self_test(*pipelines_, cases("flash_attention", "heads=4/4 head_dim=64"), {});
  ASSERT_TRUE(result.status.ok()) << result.status.error().message;
  EXPECT_EQ(result.verdict.rejected(), Names{"attention_reduce"});
}

TEST_F(SelfTestTest, TestsWhatAnOpChoosesInstead) {
  if (!pipelines_->obstacle(*find_spirv("flash_attention.broadcast")).empty() ||
      ops::FlashAttention::tuned(*pipelines_).path != ops::FlashAttention::Path::kBroadcast) {
    GTEST_SKIP() << "attention has one variant on this device";
  }
  make_wrong("flash_attention.broadcast");
  const SelfTestResult result =
      run_self_test(*pipelines_, cases("flash_attention", "heads=4/4 head_dim=64"), {});
  ASSERT_TRUE(result.status.ok()) << result.status.error().message;
  EXPECT_EQ(result.verdict.rejected(), Names{"flash_attention.broadcast"});
  EXPECT_EQ(result.verdict.modules.at("flash_attention").state, State::kPassed);
  EXPECT_TRUE(result.verdict.broken_families().empty());
}

TEST_F(SelfTestTest, KeepsEarlierVerdictsOfWhatItDoesNotTest) {
  SelfTestVerdict earlier;
  earlier.modules["gated_activation"] = {State::kPassed, 5, ""};
  earlier.modules["rms_norm"] = {State::kFailed, 0, "long ago"};
  earlier.running = "rope_kv rows=1";
  earlier.running_modules = {"rope_kv"};
  const SelfTestResult result = run_self_test(*pipelines_, cases("rms_norm", ""), earlier);
  EXPECT_EQ(result.verdict.modules.at("gated_activation"), (ModuleVerdict{State::kPassed, 5, ""}));
  EXPECT_EQ(result.verdict.modules.at("rms_norm").state, State::kPassed);
  EXPECT_EQ(result.verdict.modules.at("rope_kv").state, State::kFailed);
  EXPECT_NE(result.verdict.modules.at("rope_kv").note.find("rope_kv rows=1"), std::string::npos);
}

TEST_F(SelfTestTest, NamesTheCaseAndItsModulesBeforeEachRun) {
  std::vector<SelfTestVerdict> seen;
  const auto tests = cases("gated_activation", "rows=1");
  run_self_test(*pipelines_, tests, {},
                {.on_case = [&](const SelfTestVerdict& verdict, size_t, size_t total) {
                  seen.push_back(verdict);
                  EXPECT_EQ(total, tests.size());
                }});
  ASSERT_GE(seen.size(), 2 * tests.size());
  EXPECT_EQ(seen[0].running, "gated_activation " + tests[0].name);
  EXPECT_EQ(seen.back().running, "gated_activation " + tests.back().name);
  EXPECT_EQ(seen.back().running_modules, Names{"gated_activation"});
  EXPECT_EQ(seen.back().rejected(), Names{"gated_activation"}) << "until it is known to pass";
}

TEST_F(SelfTestTest, ThatIsInterruptedKeepsWhatItKnowsAndBlamesNobody) {
  size_t n = 0;
  const SelfTestResult result = run_self_test(*pipelines_, cases("gated_activation", ""), {},
                                              {.interrupted = [&] { return n++ == 2; }});
  ASSERT_FALSE(result.status.ok());
  EXPECT_EQ(result.status.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(result.n_cases, 2u);
  EXPECT_EQ(result.verdict.modules.at("gated_activation"), (ModuleVerdict{State::kPassed, 2, ""}));
  EXPECT_TRUE(result.verdict.rejected().empty());
}

TEST_F(SelfTestTest, AnUnprovenModuleIsNotUsedBeforeItIsAccepted) {
  vk::ShaderModule module = *find_spirv("gated_activation");
  EXPECT_EQ(pipelines_->obstacle(module), "");
  module.unproven = true;
  EXPECT_TRUE(pipelines_->obstacle(module).starts_with("never run"));
  const SelfTestVerdict passed{
      {{"gated_activation", {State::kPassed, 1, ""}}, {"rms_norm", {}}}, "", {}};
  EXPECT_EQ(passed.passed(), Names{"gated_activation"});
  pipelines_->accept(passed.passed());
  EXPECT_EQ(pipelines_->obstacle(module), "");
  pipelines_->reject({"gated_activation"});
  EXPECT_NE(pipelines_->obstacle(module), "");
}

TEST_F(SelfTestTest, ARejectedModuleIsNeitherDeclaredNorCompiled) {
  ASSERT_TRUE(ops::GatedActivation::plan(*pipelines_, ops::GatedActivation::Kind::kSilu).ok());
  EXPECT_EQ(pipelines_->pending_modules(), Names{"gated_activation"});
  pipelines_->reject({"gated_activation"});
  EXPECT_TRUE(pipelines_->pending_modules().empty());
  const auto again = ops::GatedActivation::plan(*pipelines_, ops::GatedActivation::Kind::kSilu);
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code, ErrorCode::kSelfTestFailed);
  EXPECT_NE(again.error().message.find("gated_activation"), std::string::npos);
  EXPECT_TRUE(pipelines_->compile().ok());
  EXPECT_EQ(pipelines_->compiled_count(), 0u);
}

}  // namespace
}  // namespace pumice
