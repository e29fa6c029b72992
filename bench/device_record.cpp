#include "bench/device_record.hpp"

#include "vk/plan_options.hpp"

namespace pumice::bench {

nlohmann::json device_to_json(const vk::Device& device) {
  using Json = nlohmann::json;
  const DeviceSnapshot& snapshot = device.snapshot();
  const DevicePlan& plan = device.plan();
  Json json{{"name", snapshot.name},
            {"uuid", format_uuid(snapshot.device_uuid)},
            {"type", device_type_name(snapshot.type)},
            {"driver_name", snapshot.driver_name},
            {"driver_info", snapshot.driver_info},
            {"driver_version", snapshot.driver_version},
            {"api_version", format_api_version(snapshot.api_version)},
            {"class", device_class_name(plan.device_class)},
            {"subgroup_size", plan.subgroup_size},
            {"budget_bytes", plan.device_budget_bytes},
            {"limit", format_plan_options(plan.limits)}};
  json["heaps"] = Json::array();
  for (const MemoryHeap& heap : snapshot.heaps) {
    json["heaps"].push_back({{"size_bytes", heap.size_bytes}, {"device_local", heap.device_local}});
  }
  json["features"] = Json::array();
  for (const OptionalCapability& capability : plan.optional) {
    if (capability.enabled) json["features"].push_back(capability.name);
  }
  return json;
}

}  // namespace pumice::bench
