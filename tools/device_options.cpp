#include "tools/device_options.hpp"

#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/folders.hpp"
#include "base/path.hpp"
#include "base/process.hpp"
#include "tools/terminal.hpp"
#include "vk/plan_options.hpp"

namespace pumice::tools {
namespace {

constexpr uint64_t kRoomBytes = uint64_t{32} << 20;  // its index alone is 1.3 MiB
constexpr const char* kDisable = "MESA_SHADER_CACHE_DISABLE";

/// Where Mesa makes its folder; empty if it finds no place either.
std::filesystem::path parent_of_cache() {
  for (const char* name : {"MESA_SHADER_CACHE_DIR", "MESA_GLSL_CACHE_DIR", "XDG_CACHE_HOME"}) {
    const std::string folder = environment_variable(name).value_or("");
    if (!folder.empty()) return from_utf8(folder);
  }
  const std::filesystem::path home = account_home();  // Mesa asks here too, not HOME
  return home.empty() ? home : home / ".cache";
}

/// Switch Mesa's shader cache off, with a warning, where the disk of its folder is nearly full: it
/// is mapped into memory, and a write that finds no room on the disk ends the process (SIGBUS).
/// Sets an environment variable, so it is for a program, before the driver is loaded and other
/// threads start. Does nothing where the user has set MESA_SHADER_CACHE_DISABLE.
void keep_driver_cache_off_full_disks(const Logger& logger) {
  if (std::getenv(kDisable) != nullptr) return;
  std::filesystem::path folder = parent_of_cache();
  if (folder.empty()) return;
  std::error_code error;
  while (!std::filesystem::exists(folder, error) && folder.has_relative_path()) {
    folder = folder.parent_path();
  }
  const std::filesystem::space_info space = std::filesystem::space(folder, error);
  if (error || space.available >= kRoomBytes) return;
  logger.warning(
      "{} has {} KiB left: the driver's shader cache is off, so shaders compile every time",
      to_utf8(folder), space.available / 1024);
  set_environment(kDisable, "true");
}

}  // namespace

void DeviceOptions::add_to(CLI::App& app) {
  app.add_option("--device,--dev", selector,
                 "Device: index, part of its name, or UUID (default: the best one)")
      ->envname("PUMICE_DEVICE");
  const auto problem = [](const std::string& text) {
    const Result<vk::PlanOptions> options = vk::parse_plan_options(text);
    return options.ok() ? std::string() : options.error().message;
  };
  app.add_option("--limit", limit,
                 "Use less than the device has, to test: floor, shared=16k, binding=128M,\n"
                 "subgroup=8, no-fp16, no-subgroup, ... (docs/TESTING.md)")
      ->envname("PUMICE_LIMIT")
      ->check(problem);
  app.add_flag("--list-devices", list, "List the Vulkan devices and exit");
}

Result<host::DeviceRequest> DeviceOptions::request(const Logger& logger) const {
  keep_driver_cache_off_full_disks(logger);
  const char* validation = std::getenv("PUMICE_VALIDATION");
  // Vulkan0, as llama.cpp calls the first.
  constexpr std::string_view kVulkan = "Vulkan";
  const bool is_index = selector.size() > kVulkan.size() && selector.starts_with(kVulkan) &&
                        selector.find_first_not_of("0123456789", kVulkan.size()) == selector.npos;
  host::DeviceRequest request{
      .selector = is_index ? selector.substr(kVulkan.size()) : selector,
      .validation = validation != nullptr && std::string_view(validation) == "1",
      .low_priority = low_priority};
  PUMICE_TRY(request.limits, vk::parse_plan_options(limit));
  return request;
}

Result<host::ChosenDevice> choose_device(const DeviceOptions& options, const Logger& logger) {
  PUMICE_TRY(const host::DeviceRequest request, options.request(logger));
  return host::choose_device(request, logger);
}

Result<std::shared_ptr<vk::Device>> open_device(const DeviceOptions& options,
                                                const Logger& logger) {
  PUMICE_TRY(const host::DeviceRequest request, options.request(logger));
  return host::open_device(request, logger);
}

Status print_devices(const Logger& logger) {
  PUMICE_TRY(const host::DeviceRequest any, DeviceOptions().request(logger));
  PUMICE_TRY(const std::shared_ptr<vk::Instance> instance, host::open_instance(any, logger));
  PUMICE_TRY(const std::vector<vk::DeviceSnapshot> snapshots, instance->snapshots());
  for (size_t i = 0; i < snapshots.size(); ++i) {
    const vk::DeviceSnapshot& device = snapshots[i];
    std::string lacks;
    for (const std::string& requirement : vk::missing_requirements(device)) {
      lacks += (lacks.empty() ? "  not usable, lacks: " : ", ") + requirement;
    }
    uint64_t memory_bytes = 0;
    for (const vk::MemoryHeap& heap : device.heaps) {
      if (heap.device_local) memory_bytes += heap.size_bytes;
    }
    print_text("{}  {}  {}  {} {}  Vulkan {}  {:.1f} GiB  {}{}\n", i, device.name,
               vk::device_type_name(device.type), device.driver_name, device.driver_info,
               vk::format_api_version(device.api_version),
               static_cast<double>(memory_bytes) / (1 << 30), vk::format_uuid(device.device_uuid),
               lacks);
  }
  return {};
}

}  // namespace pumice::tools
