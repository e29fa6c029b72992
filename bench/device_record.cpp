#include "bench/device_record.hpp"

#include <nlohmann/json.hpp>

#include "vk/plan_options.hpp"

namespace pumice::bench {

nlohmann::json device_to_json(const vk::Device& device) {
  using Json = nlohmann::json;
  const vk::DeviceSnapshot& snapshot = device.snapshot();
  const vk::DevicePlan& plan = device.plan();
  Json json{{"name", snapshot.name},
            {"uuid", vk::format_uuid(snapshot.device_uuid)},
            {"type", vk::device_type_name(snapshot.type)},
            {"driver_name", snapshot.driver_name},
            {"driver_info", snapshot.driver_info},
            {"driver_version", snapshot.driver_version},
            {"api_version", vk::format_api_version(snapshot.api_version)},
            {"class", vk::device_class_name(plan.device_class)},
            {"subgroup_size", plan.subgroup_size},
            {"budget_bytes", plan.device_budget_bytes},
            {"limit", vk::format_plan_options(plan.limits)}};
  json["heaps"] = Json::array();
  for (const vk::MemoryHeap& heap : snapshot.heaps) {
    json["heaps"].push_back({{"size_bytes", heap.size_bytes}, {"device_local", heap.device_local}});
  }
  json["features"] = Json::array();
  for (const vk::OptionalCapability& capability : plan.optional) {
    if (capability.enabled) json["features"].push_back(capability.name);
  }
  return json;
}

}  // namespace pumice::bench
