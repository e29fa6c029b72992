// The SPIR-V modules built into this program.
#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.hpp"
#include "format/weight_type.hpp"
#include "vk/pipeline.hpp"

namespace pumice {

/// Every module, in build order.
std::span<const vk::ShaderModule> spirv_modules();

/// The module of that name ("gemm.q4_k"). Errors: kInvalidArgument when this build lacks it.
Result<vk::ShaderModule> find_spirv(std::string_view name);

/// The module of an op for weights of that type, "gemm.q4_k" (pumice_weight_shaders in CMake).
Result<vk::ShaderModule> find_spirv(std::string_view op, const WeightType& type);

/// What a module is a variant of: modules of one family compute the same. It is the op, and the
/// weight type for ops that have a module for each: "gemm.q4_k" of "gemm.q4_k.broadcast",
/// "flash_attention" of "flash_attention.broadcast".
std::string_view module_family(std::string_view name);

/// The first of these modules, best first, that this build has and the device can run. Errors say
/// of each why it cannot: kSelfTestFailed when one would, were it not rejected; kInvalidArgument.
Result<vk::ShaderModule> choose_spirv(const vk::PipelineLibrary& pipelines,
                                      std::span<const std::string> names);

/// The pipeline of a module with the constants of `spec`, whose push constants are a Push. `label`:
/// as PipelineRequest's. Errors: PipelineLibrary::declare's.
template <typename Push, typename Spec>
Result<const vk::Pipeline*> declare_kernel(vk::PipelineLibrary& pipelines,
                                           const vk::ShaderModule& module, const Spec& spec,
                                           std::string label = {}) {
  return pipelines.declare({.module = module,
                            .label = std::move(label),
                            .constants = vk::constants_of(spec),
                            .push_bytes = sizeof(Push)});
}
/// Of the module of that name. Errors: also find_spirv's.
template <typename Push, typename Spec>
Result<const vk::Pipeline*> declare_kernel(vk::PipelineLibrary& pipelines, std::string_view module,
                                           const Spec& spec) {
  PUMICE_TRY(const vk::ShaderModule found, find_spirv(module));
  return declare_kernel<Push>(pipelines, found, spec);
}

/// Names of the modules that a self-test must pass before they are used (PipelineLibrary::accept).
std::set<std::string, std::less<>> unproven_modules();

/// GLSL extensions this build's glslc does not know, so that modules needing them are not in it.
std::span<const std::string_view> missing_glsl_extensions();

/// Modules that are not in this build for lack of such an extension.
struct LeftOutModule {
  std::string_view name;
  std::string_view glsl_extension;
};
std::span<const LeftOutModule> left_out_modules();

/// XXH3-64 over all modules: part of every cache key.
uint64_t spirv_hash();

}  // namespace pumice
