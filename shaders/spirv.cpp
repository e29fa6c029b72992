#include "shaders/spirv.hpp"

#include <xxhash.h>

#include <algorithm>

#include "base/ascii.hpp"

namespace pumice {

Result<vk::ShaderModule> find_spirv(std::string_view name) {
  for (const vk::ShaderModule& module : spirv_modules()) {
    if (module.name == name) return module;
  }
  return make_error(ErrorCode::kInvalidArgument, "this build has no shader '{}'", name);
}

Result<vk::ShaderModule> find_spirv(std::string_view op, const WeightType& type) {
  return find_spirv(lower_case(fmt::format("{}.{}", op, type.shaders)));
}

std::string_view module_family(std::string_view name) {
  const size_t op_end = std::min(name.find('.'), name.size());
  const std::string_view rest = name.substr(std::min(op_end + 1, name.size()));
  const std::string_view second = rest.substr(0, rest.find('.'));
  const bool is_type = std::ranges::any_of(
      weight_types(), [&](const WeightType& type) { return lower_case(type.name) == second; });
  return name.substr(0, is_type ? op_end + 1 + second.size() : op_end);
}

Result<vk::ShaderModule> choose_spirv(const vk::PipelineLibrary& pipelines,
                                      std::span<const std::string> names) {
  std::string reasons;
  bool rejected = false;
  for (const std::string& name : names) {
    rejected = rejected || pipelines.is_rejected(name);
    const Result<vk::ShaderModule> module = find_spirv(name);
    const std::string obstacle = module.ok() ? pipelines.obstacle(*module) : "not in this build";
    if (obstacle.empty()) return *module;
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", name, obstacle);
  }
  return make_error(rejected ? ErrorCode::kSelfTestFailed : ErrorCode::kInvalidArgument,
                    "{}: no variant can run on this device ({})",
                    names.empty() ? "" : module_family(names.front()), reasons);
}

std::set<std::string, std::less<>> unproven_modules() {
  std::set<std::string, std::less<>> names;
  for (const vk::ShaderModule& module : spirv_modules()) {
    if (module.unproven) names.emplace(module.name);
  }
  return names;
}

uint64_t spirv_hash() {
  uint64_t hash = 0;
  for (const vk::ShaderModule& module : spirv_modules()) {
    hash = XXH3_64bits_withSeed(module.words.data(), module.words.size_bytes(), hash);
  }
  return hash;
}

}  // namespace pumice
