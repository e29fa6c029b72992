#include "vk/shader_info.hpp"

#include <gtest/gtest.h>

namespace pumice {
namespace {

const uint32_t kPushConstants[] =
#include "push_constants.inc"
    ;
const uint32_t kFixedSize[] =
#include "fixed_size.inc"
    ;
const uint32_t kNoInterface[] =
#include "no_interface.inc"
    ;

constexpr uint32_t kCapabilityShader = 1;
constexpr uint32_t kCapabilityGroupNonUniformArithmetic = 63;
constexpr uint32_t kCapabilityPhysicalStorageBuffer = 5347;

std::string error_of(const std::vector<uint32_t>& words) {
  const auto info = vk::read_shader_info(words);
  return info.ok() ? "" : info.error().message;
}

std::vector<uint32_t> words_of(std::span<const uint32_t> words) {
  return {words.begin(), words.end()};
}

TEST(ShaderInfo, ReadsCapabilitiesExtensionsAndEntryPoint) {
  const auto info = vk::read_shader_info(kPushConstants);
  ASSERT_TRUE(info.ok()) << info.error().message;
  EXPECT_EQ(info->version, 0x00010600u);
  EXPECT_EQ(info->entry_point, "main");
  EXPECT_TRUE(info->has_capability(kCapabilityShader));
  EXPECT_TRUE(info->has_capability(kCapabilityGroupNonUniformArithmetic));
  EXPECT_TRUE(info->has_capability(kCapabilityPhysicalStorageBuffer));
  EXPECT_FALSE(
      vk::read_shader_info(kNoInterface)->has_capability(kCapabilityPhysicalStorageBuffer));
}

TEST(ShaderInfo, PushConstantsEndWithTheirLastMember) {
  EXPECT_EQ(vk::read_shader_info(kPushConstants)->push_constant_bytes, 36u);
  EXPECT_EQ(vk::read_shader_info(kFixedSize)->push_constant_bytes, 60u) << "mat3 of 48, then vec3";
  EXPECT_EQ(vk::read_shader_info(kNoInterface)->push_constant_bytes, 0u);
}

TEST(ShaderInfo, FindsTheSpecialisationConstantsAndWhichIsTheWorkgroupSize) {
  const auto info = vk::read_shader_info(kPushConstants);
  EXPECT_EQ(info->spec_constant_ids, (std::vector<uint32_t>{0, 3, 7}));
  EXPECT_TRUE(info->has_spec_constant(7));
  EXPECT_FALSE(info->has_spec_constant(1));
  EXPECT_EQ(info->workgroup_spec_ids[0], 0u);
  EXPECT_FALSE(info->workgroup_spec_ids[1].has_value());
  EXPECT_EQ(info->workgroup_size, (std::array<uint32_t, 3>{1, 2, 1}));
}

TEST(ShaderInfo, ReadsAFixedWorkgroupSize) {
  const auto info = vk::read_shader_info(kFixedSize);
  ASSERT_TRUE(info.ok()) << info.error().message;
  EXPECT_EQ(info->workgroup_size, (std::array<uint32_t, 3>{64, 4, 2}));
  EXPECT_FALSE(info->workgroup_spec_ids[0].has_value());
  EXPECT_TRUE(info->spec_constant_ids.empty());
}

TEST(ShaderInfo, WordsThatAreNotSpirvAreRefused) {
  EXPECT_NE(error_of({}).find("too short"), std::string::npos);
  EXPECT_NE(error_of({0x03022307, 0, 0, 0, 0}).find("byte order"), std::string::npos);
  EXPECT_NE(error_of({0x07230203, 0x00010600, 0, 1, 0}).find("entry point"), std::string::npos);
  std::vector<uint32_t> words = words_of(kNoInterface);
  words[5] = 0;  // the first instruction claims no words
  EXPECT_NE(error_of(words).find("word 5"), std::string::npos);
  words[5] = 0xFFFF0011;
  EXPECT_NE(error_of(words).find("past the end"), std::string::npos);
}

TEST(ShaderInfo, ATruncatedModuleIsRefusedOrReadButNeverOverrun) {
  for (const auto& module : {words_of(kPushConstants), words_of(kFixedSize)}) {
    for (size_t length = 0; length < module.size(); ++length) {
      // A heap copy of exactly this length, so that a sanitizer sees every overrun.
      (void)vk::read_shader_info(std::vector<uint32_t>(module.begin(), module.begin() + length));
    }
  }
}

TEST(ShaderInfo, ADamagedWordIsRefusedOrReadButNeverFollowedForever) {
  for (const auto& module : {words_of(kPushConstants), words_of(kFixedSize)}) {
    for (size_t i = 0; i < module.size(); ++i) {
      for (const uint32_t value : {0u, 1u, 0xFFFFFFFFu, module[i] ^ 1u, module[i] + 1u,
                                   i + 1 < module.size() ? module[i + 1] : 7u}) {
        std::vector<uint32_t> damaged = module;
        damaged[i] = value;
        (void)vk::read_shader_info(damaged);
      }
    }
  }
}

TEST(ShaderInfo, AStructThatContainsItselfIsRefused) {
  constexpr uint32_t kPushStorage = 9, kOffset = 35;
  const std::vector<uint32_t> words = {0x07230203,
                                       0x00010600,
                                       0,
                                       10,
                                       0,
                                       (5u << 16) | 15,
                                       5,
                                       1,
                                       0x6E69616D,
                                       0,  // OpEntryPoint GLCompute %1 "main"
                                       (5u << 16) | 72,
                                       2,
                                       0,
                                       kOffset,
                                       0,  // OpMemberDecorate %2 0 Offset 0
                                       (3u << 16) | 30,
                                       2,
                                       2,  // %2 = OpTypeStruct %2
                                       (4u << 16) | 32,
                                       3,
                                       kPushStorage,
                                       2,  // %3 = OpTypePointer PushConstant %2
                                       (4u << 16) | 59,
                                       3,
                                       4,
                                       kPushStorage};  // %4 = OpVariable %3 PushConstant
  EXPECT_NE(error_of(words).find("endless"), std::string::npos) << error_of(words);
}

}  // namespace
}  // namespace pumice
