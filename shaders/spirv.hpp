// The SPIR-V modules built into this program.
#pragma once

#include <span>
#include <string_view>

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

/// The first of these modules, best first, that this build has and the device can run. Errors:
/// kInvalidArgument saying of each why it cannot.
Result<vk::ShaderModule> choose_spirv(const vk::PipelineLibrary& pipelines,
                                      std::span<const std::string> names);

/// GLSL extensions this build's glslc does not know, so that modules needing them are not in it.
std::span<const std::string_view> missing_glsl_extensions();

/// XXH3-64 over all modules: part of every cache key.
uint64_t spirv_hash();

}  // namespace pumice
