// The words of --limit and PUMICE_LIMIT.
#include "vk/plan_options.hpp"

#include <gtest/gtest.h>

#include "tests/vk/snapshots.hpp"
#include "vk/plan.hpp"

namespace pumice {
namespace {

vk::PlanOptions parsed(std::string_view text) {
  const auto options = vk::parse_plan_options(text);
  EXPECT_TRUE(options.ok()) << options.error().message;
  return options.ok() ? *options : vk::PlanOptions{};
}

std::string refused(std::string_view text) {
  const auto options = vk::parse_plan_options(text);
  EXPECT_FALSE(options.ok()) << text;
  if (options.ok()) return "";
  EXPECT_EQ(options.error().code, ErrorCode::kInvalidArgument);
  return options.error().message;
}

TEST(PlanOptionsText, LimitsAreNumbersWithUnits) {
  const vk::PlanOptions options =
      parsed("shared=16k,workgroup=128,subgroup=4,binding=128M,budget=2G,no-fp16");
  EXPECT_EQ(options.max_shared_bytes, 16384u);
  EXPECT_EQ(options.max_workgroup_invocations, 128u);
  EXPECT_EQ(options.subgroup_size, 4u);
  EXPECT_EQ(options.slab_bytes, uint64_t{128} << 20);
  EXPECT_EQ(options.device_budget_bytes, uint64_t{2} << 30);
  EXPECT_EQ(options.disable, std::set<std::string>{"shaderFloat16"});
  EXPECT_EQ(parsed("slab=65536").slab_bytes, 65536u);
  EXPECT_EQ(parsed("shared=99G").max_shared_bytes, UINT32_MAX) << "clamps never raise";
}

TEST(PlanOptionsText, WhatCannotBeReadIsShownInALine) {
  for (const std::string text : {"\x03", "subgroup=\n", "shared=\x1b"}) {
    const std::string error = refused(text);
    EXPECT_NE(error.find("\\x"), error.npos) << error;
    for (const char c : error) EXPECT_GE(static_cast<unsigned char>(c), ' ') << error;
  }
  EXPECT_LT(refused("shared=" + std::string(5000, '0') + "1").size(), 1000u);
}

TEST(PlanOptionsText, FeaturesHaveVulkansNamesAndShortOnes) {
  EXPECT_EQ(parsed("no-shaderFloat16,no-int8,no-16bit-storage").disable,
            (std::set<std::string>{"shaderFloat16", "shaderInt8", "storageBuffer16BitAccess"}));
  EXPECT_EQ(parsed("no-subgroup").disable, std::set<std::string>{"subgroupOperations"});
  EXPECT_EQ(parsed("no-coopmat2").disable.size(), 7u);
  for (const std::string& name : vk::withdrawable_features()) {
    EXPECT_EQ(parsed("no-" + name).disable, std::set<std::string>{name});
  }
}

TEST(PlanOptionsText, TheFloorWithdrawsEverythingAndLaterWordsCount) {
  const vk::PlanOptions floor = parsed("floor");
  EXPECT_EQ(floor, vk::floor_options());
  EXPECT_EQ(floor.disable.size(), vk::withdrawable_features().size());
  EXPECT_EQ(parsed("no-all").disable, floor.disable);
  EXPECT_EQ(parsed("floor,shared=32k").max_shared_bytes, 32768u);
  EXPECT_EQ(parsed("floor,none"), vk::PlanOptions{});
  EXPECT_EQ(parsed(""), vk::PlanOptions{});
  EXPECT_EQ(parsed(",no-fp16,,").disable.size(), 1u);
}

TEST(PlanOptionsText, TheFloorIsADeviceThatCanBeUsed) {
  for (const std::string& name : test::snapshot_names()) {
    const vk::DeviceSnapshot device = test::snapshot(name);
    if (!vk::missing_requirements(device).empty()) continue;
    const auto plan = vk::plan_device(device, vk::floor_options());
    ASSERT_TRUE(plan.ok()) << name << ": " << plan.error().message;
    for (const vk::OptionalCapability& capability : plan->optional) {
      EXPECT_FALSE(capability.enabled) << name << " " << capability.name;
    }
    EXPECT_EQ(plan->max_shared_bytes, 16384u) << name;
    EXPECT_EQ(plan->max_workgroup_invocations, 128u) << name;
    EXPECT_EQ(plan->slab_bytes, uint64_t{128} << 20) << name;
    EXPECT_FALSE(plan->subgroup.arithmetic || plan->subgroup.shuffle || plan->subgroup.ballot);
    EXPECT_EQ(plan->timestamp_valid_bits, 0u) << name;
    EXPECT_EQ(plan->limits, vk::floor_options());
  }
}

TEST(PlanOptionsText, IsWrittenAsItIsRead) {
  for (const char* text : {"", "floor", "no-all", "shared=17000,no-coopmat", "subgroup=16",
                           "binding=64M,budget=3G,no-timestamps,no-int64"}) {
    const vk::PlanOptions options = parsed(text);
    EXPECT_EQ(parsed(vk::format_plan_options(options)), options) << text;
  }
  EXPECT_EQ(vk::format_plan_options(vk::PlanOptions{}), "");
  EXPECT_EQ(vk::format_plan_options(parsed("no-fp16,shared=32768")), "shared=32k,no-shaderFloat16");
}

TEST(PlanOptionsText, AnythingElseIsRefusedInALineThatSaysWhatIsKnown) {
  for (const char* text : {"x",
                           "no-",
                           "no-shaderFloat61",
                           "no-timelineSemaphore",
                           "shared=",
                           "shared",
                           "=16k",
                           "shared=16kk",
                           "shared=-1",
                           "shared=0",
                           "shared=1e6",
                           "shared= 16k",
                           "shared=16k=16k",
                           "binding=99999999999999999999",
                           "binding=18446744073709551615G",
                           "subgroup=x",
                           "fp16",
                           "no-fp16 ",
                           "NO-FP16",
                           "shared=16T",
                           "\n",
                           "no-fp16;no-int8"}) {
    const std::string message = refused(text);
    EXPECT_NE(message.find("shared= workgroup="), std::string::npos) << text;
    EXPECT_NE(message.find("16bit-storage"), std::string::npos) << text;
    EXPECT_LT(message.size(), 500u) << text;
  }
  EXPECT_LT(refused(std::string(100000, 'a')).size(), 500u);
  EXPECT_NE(refused("no-fp16,oops,no-int8").find("'oops'"), std::string::npos);
}

TEST(PlanOptionsText, NothingGoesBelowWhatEveryDeviceHas) {
  EXPECT_NE(refused("shared=8k").find("below 16384"), std::string::npos);
  EXPECT_NE(refused("workgroup=64").find("below 128"), std::string::npos);
}

}  // namespace
}  // namespace pumice
