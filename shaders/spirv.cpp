#include "shaders/spirv.hpp"

#include <xxhash.h>

#include <algorithm>
#include <cctype>

namespace pumice {

Result<vk::ShaderModule> find_spirv(std::string_view name) {
  for (const vk::ShaderModule& module : spirv_modules()) {
    if (module.name == name) return module;
  }
  return make_error(ErrorCode::kInvalidArgument, "this build has no shader '{}'", name);
}

Result<vk::ShaderModule> find_spirv(std::string_view op, const WeightType& type) {
  std::string name = fmt::format("{}.{}", op, type.name);
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  return find_spirv(name);
}

Result<vk::ShaderModule> choose_spirv(const vk::PipelineLibrary& pipelines,
                                      std::span<const std::string> names) {
  std::string reasons;
  for (const std::string& name : names) {
    const Result<vk::ShaderModule> module = find_spirv(name);
    const std::string obstacle = module.ok() ? pipelines.obstacle(*module) : "not in this build";
    if (obstacle.empty()) return *module;
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", name, obstacle);
  }
  return make_error(ErrorCode::kInvalidArgument, "no variant can run on this device ({})", reasons);
}

uint64_t spirv_hash() {
  uint64_t hash = 0;
  for (const vk::ShaderModule& module : spirv_modules()) {
    hash = XXH3_64bits_withSeed(module.words.data(), module.words.size_bytes(), hash);
  }
  return hash;
}

}  // namespace pumice
