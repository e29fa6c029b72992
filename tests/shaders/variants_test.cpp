// No device is given SPIR-V that needs more than is enabled on it: every module of this build
// against every recorded device, whole and with its optional features withdrawn.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "shaders/spirv.hpp"
#include "tests/vk/snapshots.hpp"
#include "vk/shader_info.hpp"
#include "vk/shader_requirements.hpp"

namespace pumice {
namespace {

/// What a module must do where a device lacks what it needs: let another of its family run. A
/// family is an op, for a weight type where there are modules of each.
std::string family_of(std::string_view name) {
  const size_t dot = name.find('.');
  if (dot == std::string_view::npos) return std::string(name);
  const std::string_view rest = name.substr(dot + 1);
  const std::string_view second = rest.substr(0, rest.find('.'));
  const auto is_type = [&](const WeightType& type) {
    return std::equal(
        second.begin(), second.end(), type.name.begin(), type.name.end(),
        [](char a, char b) { return a == std::tolower(static_cast<unsigned char>(b)); });
  };
  const auto types = weight_types();
  const bool typed = std::any_of(types.begin(), types.end(), is_type);
  return std::string(name.substr(0, typed ? dot + 1 + second.size() : dot));
}

struct Module {
  std::string name;
  std::string family;
  vk::ShaderInfo info;
};

std::vector<Module> modules() {
  std::vector<Module> all;
  for (const vk::ShaderModule& module : spirv_modules()) {
    auto info = vk::read_shader_info(module.words);
    PUMICE_CHECK(info.ok(), std::string(module.name) + ": " + info.error().message);
    all.push_back({std::string(module.name), family_of(module.name), std::move(*info)});
  }
  return all;
}

/// Devices as they are, without one feature each, and with nothing but the floor.
void for_each_plan(const std::function<void(const std::string&, const vk::DevicePlan&)>& visit) {
  std::vector<vk::PlanOptions> limits{{}, vk::floor_options()};
  for (const std::string& feature : vk::withdrawable_features())
    limits.push_back({.disable = {feature}});
  for (const std::string& name : test::snapshot_names()) {
    const vk::DeviceSnapshot device = test::snapshot(name);
    if (!vk::missing_requirements(device).empty()) continue;
    for (const vk::PlanOptions& limit : limits) {
      const auto plan = vk::plan_device(device, limit);
      ASSERT_TRUE(plan.ok()) << name << ": " << plan.error().message;
      visit(name + " with limit '" + vk::format_plan_options(limit) + "'", *plan);
    }
  }
}

TEST(Variants, AFamilyIsAnOpOrItsModulesOfOneWeightType) {
  EXPECT_EQ(family_of("rms_norm"), "rms_norm");
  EXPECT_EQ(family_of("flash_attention.broadcast"), "flash_attention");
  EXPECT_EQ(family_of("embedding.q4_k"), "embedding.q4_k");
  EXPECT_EQ(family_of("gemm.q4_k.shared"), "gemm.q4_k");
}

TEST(Variants, EveryFamilyHasAModuleThatRunsOnEveryDeviceWhateverIsWithdrawn) {
  const std::vector<Module> all = modules();
  ASSERT_GT(all.size(), 50u);
  for_each_plan([&](const std::string& device, const vk::DevicePlan& plan) {
    std::map<std::string, std::string> obstacles;  // of a family; "" once a module runs
    for (const Module& module : all) {
      if (module.family.starts_with("peak.")) continue;  // measures what there is
      const auto missing = vk::missing_capabilities(module.info.capabilities, plan);
      const auto [at, first] = obstacles.try_emplace(module.family, "?");
      if (missing.empty()) at->second.clear();
      if (!at->second.empty()) at->second = module.name + " needs " + missing[0];
    }
    for (const auto& [family, obstacle] : obstacles) {
      EXPECT_TRUE(obstacle.empty()) << family << " cannot run on " << device << ": " << obstacle;
    }
  });
}

TEST(Variants, NothingNeedsWhatThisProjectNeverEnables) {
  vk::DevicePlan everything;
  for (const vk::FeatureName& feature : vk::feature_names())
    everything.features.*feature.member = true;
  vk::SubgroupFacts& subgroup = everything.subgroup;
  subgroup.basic = subgroup.vote = subgroup.arithmetic = subgroup.ballot = true;
  subgroup.shuffle = subgroup.shuffle_relative = subgroup.clustered = subgroup.quad = true;
  for (const Module& module : modules()) {
    EXPECT_EQ(vk::missing_capabilities(module.info.capabilities, everything),
              std::vector<std::string>{})
        << module.name;
    EXPECT_LE(module.info.push_constant_bytes, vk::kFloorPushConstantBytes) << module.name;
    EXPECT_LE(module.info.version, 0x00010600u) << module.name;
  }
}

}  // namespace
}  // namespace pumice
