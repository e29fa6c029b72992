// A pipeline's machine code as the driver's compiler prints it (VK_KHR_pipeline_executable_properties).
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"
#include "vk/device.hpp"
#include "vk/pipeline.hpp"

namespace pumice::test {

struct Listing {
  std::vector<vk::PipelineStatistic> statistics;
  /// Drivers give the stages of compilation in order, and this is the last. Bytes that are not text
  /// may be in it.
  std::string text;
};

/// Compiles a declared pipeline once more, to see more of it than PipelineLibrary keeps. Errors:
/// kInternal when the driver shows nothing, and those of the device.
Result<Listing> compile_listing(const vk::Device& device, const vk::Pipeline& pipeline);

}  // namespace pumice::test
