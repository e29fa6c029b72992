#include "vk/shader_requirements.hpp"

#include <gtest/gtest.h>

namespace pumice {
namespace {

using Names = std::vector<std::string>;
constexpr uint32_t kShader = 1;
constexpr uint32_t kFloat16 = 9;
constexpr uint32_t kFloat64 = 10;
constexpr uint32_t kArithmetic = 63;
constexpr uint32_t kCooperativeMatrix = 6022;

TEST(MissingCapabilities, AreThoseWhoseFeatureIsOff) {
  vk::DevicePlan plan;
  EXPECT_EQ(vk::missing_capabilities(std::vector{kShader, kFloat16, kCooperativeMatrix}, plan),
            (Names{"shaderFloat16", "cooperativeMatrix"}));
  plan.features.shader_float16 = true;
  EXPECT_EQ(vk::missing_capabilities(std::vector{kShader, kFloat16, kCooperativeMatrix}, plan),
            (Names{"cooperativeMatrix"}));
  plan.features.cooperative_matrix = true;
  EXPECT_EQ(vk::missing_capabilities(std::vector{kShader, kFloat16, kCooperativeMatrix}, plan),
            Names{});
}

TEST(MissingCapabilities, SubgroupOperationsNeedWhatThePlanAllows) {
  vk::DevicePlan plan;
  EXPECT_EQ(vk::missing_capabilities(std::vector{kArithmetic}, plan), Names{"subgroupArithmetic"});
  plan.subgroup.arithmetic = true;
  EXPECT_EQ(vk::missing_capabilities(std::vector{kArithmetic}, plan), Names{});
}

TEST(MissingCapabilities, NameWhatIsNeverEnabledByNumber) {
  EXPECT_EQ(vk::missing_capabilities(std::vector{kFloat64, kFloat64}, vk::DevicePlan{}),
            Names{"SPIR-V capability 10"});
}

}  // namespace
}  // namespace pumice
