// Which modules a failed case blames.
#include <gtest/gtest.h>

#include "shaders/self_test.hpp"
#include "shaders/spirv.hpp"

namespace pumice {
namespace {

using State = CaseOutcome::State;
using Names = vk::PipelineLibrary::ModuleNames;

CaseOutcome passed(Names modules) {
  return {.state = State::kPassed, .name = "passed", .modules = std::move(modules), .message = {}};
}
CaseOutcome failed(Names modules) {
  return {.state = State::kFailed, .name = "failed", .modules = std::move(modules), .message = "x"};
}
Names blamed(const std::vector<CaseOutcome>& outcomes, const Names& replaceable = {}) {
  return blame(outcomes, [&](std::string_view name) { return replaceable.contains(name); });
}

TEST(Blame, IsNobodysWhenAllPass) {
  EXPECT_EQ(blamed({passed({"a"}), passed({"a", "b"})}), Names{});
}

TEST(Blame, FallsOnTheOnlyModuleOfACaseEvenIfItPassesOthers) {
  EXPECT_EQ(blamed({passed({"a"}), failed({"a"}), passed({"b"})}), Names{"a"});
}

TEST(Blame, IsExplainedByAModuleThatIsWrongByItself) {
  EXPECT_EQ(blamed({failed({"attention", "reduce"}), failed({"attention"}), passed({"sibling"})}),
            Names{"attention"});
}

TEST(Blame, FallsOnWhatPassesNothing) {
  // reduce is wrong: with either attention kernel, which are right without it.
  EXPECT_EQ(blamed({failed({"tile", "reduce"}), failed({"broadcast", "reduce"}), passed({"tile"}),
                    passed({"broadcast"})},
                   {"tile", "broadcast"}),
            Names{"reduce"});
}

TEST(Blame, FallsOnWhatCanBeReplacedAmongSuspects) {
  // broadcast is wrong when its result is split, reduce works with tile.
  EXPECT_EQ(blamed({passed({"tile", "reduce"}), failed({"broadcast", "reduce"}), passed({"tile"}),
                    passed({"broadcast"})},
                   {"tile", "broadcast"}),
            (Names{"broadcast"}));
  EXPECT_EQ(blamed({failed({"broadcast", "reduce"})}, {"broadcast"}), Names{"broadcast"});
}

TEST(Blame, FallsOnAllWhoCannotBeToldApart) {
  EXPECT_EQ(blamed({failed({"a", "b"})}), (Names{"a", "b"}));
}

TEST(Blame, LeavesSkippedCasesAndThoseWithoutModulesOut) {
  CaseOutcome skipped = failed({"a"});
  skipped.state = State::kSkipped;
  EXPECT_EQ(blamed({skipped, failed({}), passed({"a"})}), Names{});
}

TEST(ModuleFamily, IsTheOpAndItsWeightType) {
  EXPECT_EQ(module_family("gemm.q4_k.broadcast"), "gemm.q4_k");
  EXPECT_EQ(module_family("embedding.iq4_nl"), "embedding.iq4_nl");
  EXPECT_EQ(module_family("flash_attention.broadcast"), "flash_attention");
  EXPECT_EQ(module_family("flash_attention"), "flash_attention");
  EXPECT_EQ(module_family(""), "");
}

TEST(SelfTestVerdict, RejectsWhatFailedAndWhatATestEndedIn) {
  SelfTestVerdict verdict;
  verdict.modules["gemm.q4_k.shared"] = {ModuleVerdict::State::kPassed, 3, ""};
  verdict.modules["gemm.q4_k.broadcast"] = {ModuleVerdict::State::kFailed, 0, "wrong"};
  EXPECT_EQ(verdict.rejected(), Names{"gemm.q4_k.broadcast"});
  EXPECT_TRUE(verdict.broken_families().empty());

  verdict.modules["gemv_reduce"] = {ModuleVerdict::State::kFailed, 0, "wrong"};
  EXPECT_TRUE(verdict.broken_families().empty()) << "gemv does without";
  verdict.modules.erase("gemv_reduce");

  verdict.running = "gemm Q4_K";
  verdict.running_modules = {"gemm.q4_k.shared"};
  EXPECT_EQ(verdict.rejected(), (Names{"gemm.q4_k.broadcast", "gemm.q4_k.shared"}));
  EXPECT_EQ(verdict.broken_families(), std::vector<std::string>{"gemm.q4_k"});
}

}  // namespace
}  // namespace pumice
