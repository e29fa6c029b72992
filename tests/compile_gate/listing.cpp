#include "tests/compile_gate/listing.hpp"

#include <algorithm>

#include "shaders/spirv.hpp"
#include "vk/instance.hpp"

namespace pumice::test {
namespace {

/// What is asked of one executable; a compute pipeline is one.
template <typename Row, typename Get>
VkResult read_rows(const vk::Device& device, Get get, VkPipeline pipeline, VkStructureType type,
                   std::vector<Row>& rows) {
  VkPipelineExecutableInfoKHR info{};
  info.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR;
  info.pipeline = pipeline;
  auto count = static_cast<uint32_t>(rows.size());
  if (rows.empty()) {
    const VkResult result = get(device.handle(), &info, &count, nullptr);
    if (result != VK_SUCCESS) return result;
    Row empty{};
    empty.sType = type;
    rows.assign(count, empty);
  }
  return get(device.handle(), &info, &count, rows.data());
}

double value_of(const VkPipelineExecutableStatisticKHR& row) {
  switch (row.format) {
    case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_BOOL32_KHR:
      return row.value.b32;
    case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_INT64_KHR:
      return static_cast<double>(row.value.i64);
    case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_UINT64_KHR:
      return static_cast<double>(row.value.u64);
    default:
      return row.value.f64;
  }
}

Result<Listing> read_listing(const vk::Device& device, const vk::Pipeline& pipeline,
                             VkPipeline compiled) {
  const auto get_texts = reinterpret_cast<PFN_vkGetPipelineExecutableInternalRepresentationsKHR>(
      device.instance()->functions().vkGetDeviceProcAddr(
          device.handle(), "vkGetPipelineExecutableInternalRepresentationsKHR"));
  const auto get_statistics = device.fn().vkGetPipelineExecutableStatisticsKHR;
  if (!device.plan().features.pipeline_executable_info || get_texts == nullptr ||
      get_statistics == nullptr) {
    return make_error(ErrorCode::kInternal, "{}: this driver does not say what it compiled",
                      pipeline.label());
  }
  Listing listing;
  std::vector<VkPipelineExecutableStatisticKHR> rows;
  VkResult result = read_rows(device, get_statistics, compiled,
                              VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR, rows);
  for (const auto& row : rows) listing.statistics.push_back({row.name, value_of(row)});
  // Sizes first, then the texts.
  std::vector<VkPipelineExecutableInternalRepresentationKHR> stages;
  const auto read_stages = [&] {
    return read_rows(device, get_texts, compiled,
                     VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INTERNAL_REPRESENTATION_KHR, stages);
  };
  if (result == VK_SUCCESS) result = read_stages();
  std::vector<std::string> texts;
  for (const auto& stage : stages) texts.emplace_back(stage.dataSize, '\0');
  for (size_t i = 0; i < stages.size(); ++i) stages[i].pData = texts[i].data();
  if (result == VK_SUCCESS && !stages.empty()) result = read_stages();
  if (result != VK_SUCCESS) {
    return device.error_of(result, "reading the listing of " + pipeline.label());
  }
  if (texts.empty()) {
    return make_error(ErrorCode::kInternal, "{}: this driver gives no listing", pipeline.label());
  }
  listing.text = texts.back().substr(0, texts.back().find('\0'));
  return listing;
}

}  // namespace

Result<Listing> compile_listing(const vk::Device& device, const vk::Pipeline& pipeline) {
  const vk::DeviceFunctions& fn = device.fn();
  PUMICE_TRY(const vk::ShaderModule spirv, find_spirv(pipeline.module_name()));
  VkShaderModuleCreateInfo module_info{};
  module_info.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO;
  module_info.codeSize = spirv.words.size_bytes();
  module_info.pCode = spirv.words.data();
  VkShaderModule module = VK_NULL_HANDLE;
  VkResult result = fn.vkCreateShaderModule(device.handle(), &module_info, nullptr, &module);
  if (result != VK_SUCCESS) return device.error_of(result, "loading shader " + pipeline.label());

  std::vector<VkSpecializationMapEntry> entries;
  std::vector<uint32_t> values;
  for (const auto& [id, value] : pipeline.constants()) {
    entries.push_back({id, static_cast<uint32_t>(values.size() * 4), 4});
    values.push_back(value);
  }
  const VkSpecializationInfo constants{static_cast<uint32_t>(entries.size()), entries.data(),
                                       values.size() * 4, values.data()};
  VkPipelineShaderStageRequiredSubgroupSizeCreateInfo subgroup{};
  subgroup.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO;
  subgroup.requiredSubgroupSize = pipeline.subgroup_size();
  VkComputePipelineCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO;
  info.flags = VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR |
               VK_PIPELINE_CREATE_CAPTURE_INTERNAL_REPRESENTATIONS_BIT_KHR;
  info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
  if (pipeline.full_subgroups()) {
    info.stage.flags = VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT;
  }
  const bool require_size = pipeline.subgroup_size() != 0 && device.plan().require_subgroup_size;
  info.stage.pNext = require_size ? &subgroup : nullptr;
  info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
  info.stage.module = module;
  info.stage.pName = "main";
  info.stage.pSpecializationInfo = &constants;
  info.layout = pipeline.layout();
  VkPipeline compiled = VK_NULL_HANDLE;
  result =
      fn.vkCreateComputePipelines(device.handle(), VK_NULL_HANDLE, 1, &info, nullptr, &compiled);
  fn.vkDestroyShaderModule(device.handle(), module, nullptr);
  if (result != VK_SUCCESS) return device.error_of(result, "compiling " + pipeline.label());
  Result<Listing> listing = read_listing(device, pipeline, compiled);
  fn.vkDestroyPipeline(device.handle(), compiled, nullptr);
  return listing;
}

}  // namespace pumice::test
