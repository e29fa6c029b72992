#include "tests/shaders/recorded_device.hpp"

#include <cstring>
#include <utility>

#include "base/check.hpp"
#include "tests/vk/snapshots.hpp"
#include "vk/instance.hpp"
#include "vk/plan.hpp"

namespace pumice::test {
namespace {

/// An entry point that does nothing and succeeds, of the type of `like`.
template <typename R, typename... Args>
PFN_vkVoidFunction do_nothing(R(VKAPI_PTR* /*like*/)(Args...)) {
  R(VKAPI_PTR * function)(Args...) = [](Args...) -> R { return R(); };
  return reinterpret_cast<PFN_vkVoidFunction>(function);
}

#define PUMICE_DO_NOTHING(function) \
  if (std::strcmp(name, #function) == 0) return do_nothing(PFN_##function());

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL device_function(VkDevice, const char* name) {
  PUMICE_VK_DEVICE_FUNCTIONS(PUMICE_DO_NOTHING)
  return nullptr;
}

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL instance_function(VkInstance, const char* name) {
  if (std::strcmp(name, "vkGetDeviceProcAddr") == 0) {
    return reinterpret_cast<PFN_vkVoidFunction>(&device_function);
  }
  PUMICE_VK_INSTANCE_FUNCTIONS(PUMICE_DO_NOTHING)
  return nullptr;
}

#undef PUMICE_DO_NOTHING

vk::MatrixShape half_matrix(uint32_t m, uint32_t n, uint32_t k) {
  return {.m = m,
          .n = n,
          .k = k,
          .a = vk::ComponentType::kF16,
          .b = vk::ComponentType::kF16,
          .c = vk::ComponentType::kF32,
          .result = vk::ComponentType::kF32,
          .subgroup_scope = true};
}

RecordedDevice with_matrices(const std::string& name, std::vector<vk::MatrixShape> shapes) {
  RecordedDevice device{.name = name + "+matrices", .snapshot = snapshot(name)};
  device.snapshot.matrix_shapes = std::move(shapes);
  return device;
}

RecordedDevice limited(RecordedDevice device, const std::string& limits) {
  const auto options = vk::parse_plan_options(limits);
  PUMICE_CHECK(options.ok(), limits);
  device.name += "," + limits;
  device.limits = *options;
  return device;
}

/// lavapipe between the recorded ones: no cooperative matrices, but Vulkan 1.4.
RecordedDevice lavapipe_25() {
  RecordedDevice device{.name = "lavapipe_25", .snapshot = snapshot("lavapipe_26")};
  device.snapshot.driver_info = "Mesa 25.0.7-2 (LLVM 19.1.7)";
  device.snapshot.driver_version = VK_MAKE_API_VERSION(0, 25, 0, 7);
  device.snapshot.api_version = VK_MAKE_API_VERSION(0, 1, 4, 305);
  device.snapshot.features.cooperative_matrix = false;
  device.snapshot.matrix_shapes.clear();
  return device;
}

/// A device as one with NV cooperative matrix 2 might describe itself.
RecordedDevice with_matrix2() {
  RecordedDevice device = with_matrices(
      "nvidia_rtx_4090", {half_matrix(16, 16, 16), half_matrix(16, 8, 16), half_matrix(16, 8, 8)});
  device.name = "nvidia_rtx_4090+matrix2";
  constexpr auto kHalf = vk::ComponentType::kF16, kFloat = vk::ComponentType::kF32;
  device.snapshot.matrix2 = {
      .max_workgroup_size = 256, .max_dimension = 512, .reserved_shared_bytes = 4096};
  device.snapshot.flexible_matrix_shapes = {
      {16, 16, 16, kHalf, kHalf, kFloat, kFloat, false, true, 128},
      {32, 32, 16, kHalf, kHalf, kFloat, kFloat, false, true, 256}};
  return device;
}

}  // namespace

std::vector<RecordedDevice> recorded_devices() {
  std::vector<RecordedDevice> devices;
  for (const std::string& name : snapshot_names()) {
    const vk::DeviceSnapshot recorded = snapshot(name);
    if (vk::missing_requirements(recorded).empty()) devices.push_back({name, recorded});
  }
  const std::vector<RecordedDevice> makers = {
      with_matrices("nvidia_rtx_4090",
                    {half_matrix(16, 16, 16), half_matrix(16, 8, 16), half_matrix(16, 8, 8)}),
      with_matrices("amd_780m_radv", {half_matrix(16, 16, 16)}),
      with_matrices("amd_rx_6800_xt_windows", {half_matrix(16, 16, 16)}),
      with_matrices("intel_arc_a770_mesa", {half_matrix(8, 8, 16)}),
      with_matrices("intel_arc_a770_windows", {half_matrix(8, 16, 16)}),
      with_matrices("arm_mali_g715", {half_matrix(16, 16, 16)}),
      with_matrix2(),
      lavapipe_25()};
  devices.insert(devices.end(), makers.begin(), makers.end());
  for (const char* limits : {"shared=32k", "shared=16k", "workgroup=256", "workgroup=128"}) {
    devices.push_back(limited(makers[0], limits));
    devices.push_back(limited(makers[3], limits));
  }
  devices.push_back(limited(makers[1], "subgroup=64"));
  const RecordedDevice nvidia{"nvidia_rtx_4090", snapshot("nvidia_rtx_4090")};
  for (const char* limits : {"floor", "no-subgroupShuffle", "no-subgroupArithmetic"}) {
    devices.push_back(limited(nvidia, limits));
  }
  const RecordedDevice lavapipe{"lavapipe_26", snapshot("lavapipe_26")};
  for (const char* limits : {"floor", "no-int64", "no-subgroupShuffle", "shared=16k"}) {
    devices.push_back(limited(lavapipe, limits));
  }
  devices.push_back(limited({"lavapipe_22", snapshot("lavapipe_22")}, "floor"));
  return devices;
}

std::shared_ptr<vk::Device> open_without_driver(const RecordedDevice& recorded, Logger logger) {
  // Handles that no driver looks at.
  static int any = 0;
  auto instance = vk::Instance::adopt(instance_function, reinterpret_cast<VkInstance>(&any),
                                      reinterpret_cast<VkPhysicalDevice>(&any));
  PUMICE_CHECK(instance.ok(), "no instance");
  auto plan = vk::plan_device(recorded.snapshot, recorded.limits);
  PUMICE_CHECK(plan.ok(), recorded.name + ": " + plan.error().message);
  plan->compile_only = true;
  auto device = vk::Device::create(std::make_shared<vk::Instance>(*std::move(instance)), 0,
                                   recorded.snapshot, *std::move(plan), std::move(logger));
  PUMICE_CHECK(device.ok(), recorded.name + ": " + device.error().message);
  return *std::move(device);
}

}  // namespace pumice::test
