#include "vk/shader_requirements.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace pumice::vk {
namespace {

using F = DeviceFeatures;
using S = SubgroupFacts;

// The numbers are the SPIR-V registry's.
struct FeatureCapability {
  uint32_t number;
  bool F::*member;
};
constexpr FeatureCapability kFeatureCapabilities[] = {
    {9, &F::shader_float16},                // Float16
    {11, &F::shader_int64},                 // Int64
    {22, &F::shader_int16},                 // Int16
    {39, &F::shader_int8},                  // Int8
    {4428, &F::workgroup_explicit_layout},  // WorkgroupMemoryExplicitLayoutKHR
    {4433, &F::storage_16bit},              // StorageBuffer16BitAccess
    {4448, &F::storage_8bit},               // StorageBuffer8BitAccess
    {5116, &F::bfloat16},                   // BFloat16TypeKHR
    {5118, &F::bfloat16_cooperative_matrix},
    {5345, &F::memory_model},
    {5346, &F::memory_model_device_scope},
    {5347, &F::buffer_device_address},  // PhysicalStorageBufferAddresses
    {5430, &F::matrix2_reductions},
    {5431, &F::matrix2_conversions},
    {5432, &F::matrix2_per_element},
    {5433, &F::matrix2_tensor_addressing},
    {5434, &F::matrix2_block_loads},
    {5439, &F::matrix2_tensor_addressing},  // TensorAddressingNV
    {6016, &F::integer_dot},                // DotProductInputAll
    {6017, &F::integer_dot},                // DotProductInput4x8Bit
    {6018, &F::integer_dot},                // DotProductInput4x8BitPacked
    {6019, &F::integer_dot},                // DotProduct
    {6022, &F::cooperative_matrix},         // CooperativeMatrixKHR
};

struct SubgroupCapability {
  uint32_t number;
  bool S::*member;
  const char* name;
};
constexpr SubgroupCapability kSubgroupCapabilities[] = {
    {61, &S::basic, "subgroupBasic"},
    {62, &S::vote, "subgroupVote"},
    {63, &S::arithmetic, "subgroupArithmetic"},
    {64, &S::ballot, "subgroupBallot"},
    {65, &S::shuffle, "subgroupShuffle"},
    {66, &S::shuffle_relative, "subgroupShuffleRelative"},
    {67, &S::clustered, "subgroupClustered"},
    {68, &S::quad, "subgroupQuad"},
};

constexpr uint32_t kMatrix = 0;
constexpr uint32_t kShader = 1;

std::string missing_capability(uint32_t number, const DevicePlan& plan) {
  if (number == kMatrix || number == kShader) return {};
  for (const SubgroupCapability& known : kSubgroupCapabilities) {
    if (known.number == number) return plan.subgroup.*known.member ? "" : known.name;
  }
  for (const FeatureCapability& known : kFeatureCapabilities) {
    if (known.number != number) continue;
    if (plan.features.*known.member) return {};
    const auto names = feature_names();
    const auto feature = std::ranges::find_if(
        names, [&](const FeatureName& name) { return name.member == known.member; });
    return std::string(feature->name);
  }
  return fmt::format("SPIR-V capability {}", number);
}

}  // namespace

std::vector<std::string> missing_capabilities(std::span<const uint32_t> capabilities,
                                              const DevicePlan& plan) {
  std::vector<std::string> missing;
  for (const uint32_t number : capabilities) {
    std::string name = missing_capability(number, plan);
    if (!name.empty() && std::ranges::find(missing, name) == missing.end()) {
      missing.push_back(std::move(name));
    }
  }
  return missing;
}

}  // namespace pumice::vk
