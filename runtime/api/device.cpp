// The C ABI: devices and what they say.
#include <chrono>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "api/handles.hpp"
#include "api/structs.hpp"
#include "host/open_device.hpp"

namespace pumice::api {
namespace {

pumice_device_info info_of(const vk::DeviceSnapshot& snapshot) {
  pumice_device_info info{sizeof info};
  write_text(snapshot.name, info.name);
  write_text(fmt::format("{} {}", snapshot.driver_name, snapshot.driver_info), info.driver);
  write_text(vk::format_uuid(snapshot.device_uuid), info.uuid);
  for (const vk::MemoryHeap& heap : snapshot.heaps) {
    if (heap.device_local) info.memory_bytes += heap.size_bytes;
  }
  info.is_cpu = snapshot.type == vk::DeviceType::kCpu;
  return info;
}

Result<std::vector<pumice_device_info>> all_devices() {
  PUMICE_TRY(const std::shared_ptr<vk::Instance> instance, host::open_instance({}, {}));
  PUMICE_TRY(const std::vector<vk::DeviceSnapshot> snapshots, instance->snapshots());
  std::vector<pumice_device_info> infos;
  for (const vk::DeviceSnapshot& snapshot : snapshots) infos.push_back(info_of(snapshot));
  return infos;
}

ApiStatus list(pumice_device_info* devices, size_t capacity, size_t* n_devices) {
  PUMICE_TRY_STATUS(check_output_array(devices, capacity, n_devices));
  if (capacity > 0) PUMICE_TRY_STATUS(check_struct(devices, "devices"));
  PUMICE_TRY(const std::vector<pumice_device_info> infos, all_devices());
  *n_devices = infos.size();
  // Elements are as far apart as the caller's struct is large.
  const size_t stride = capacity > 0 ? devices->struct_size : 0;
  auto* out = reinterpret_cast<unsigned char*>(devices);
  for (size_t i = 0; i < std::min(capacity, infos.size()); ++i) {
    auto* element = reinterpret_cast<pumice_device_info*>(out + i * stride);
    element->struct_size = stride;
    write_struct(infos[i], element);
  }
  if (capacity == 0 || infos.size() <= capacity) return {};
  return {PUMICE_TOO_SMALL,
          fmt::format("{} devices do not fit an array of {}", infos.size(), capacity)};
}

Result<std::unique_ptr<pumice_device>> open(const pumice_device_options* given) {
  PUMICE_TRY(DeviceOptions options, read_device_options(given));
  PUMICE_TRY(std::shared_ptr<host::DeviceOwner> owner,
             host::DeviceOwner::open(std::move(options.open)));
  return make_device(std::move(owner), std::move(options.log));
}

pumice_self_test_result result_of(const SelfTestResult& result) {
  pumice_self_test_result out{sizeof out};
  out.n_cases = static_cast<uint32_t>(result.n_cases);
  out.n_errors = static_cast<uint32_t>(result.errors.size());
  uint32_t* const counts[] = {&out.n_not_run, &out.n_passed, &out.n_failed, &out.n_not_supported};
  for (const auto& [name, verdict] : result.verdict.modules) {
    ++*counts[static_cast<size_t>(verdict.state)];
  }
  return out;
}

ApiStatus self_test(const pumice_device& device, const pumice_self_test_options* given,
                    pumice_self_test_result* out) {
  PUMICE_TRY(const pumice_self_test_options options, read_optional_struct(given, "options"));
  PUMICE_TRY(const std::string_view operations, read_text(options.operations, "operations"));
  const auto start = std::chrono::steady_clock::now();
  SelfTestOptions watch;
  if (options.timeout_us != 0) {
    watch.interrupted = [limit = duration_of(options.timeout_us), start] {
      return std::chrono::steady_clock::now() - start > limit;
    };
  }
  SelfTestResult result;
  const Status status = device.owner->test(operations, watch, result);
  write_struct(result_of(result), out);
  if (status.ok() || status.error().code != ErrorCode::kCancelled) return status;
  return {PUMICE_CANCELLED,
          fmt::format("the self-test ended at its time limit, after {} cases", result.n_cases)};
}

pumice_log_level level_of(LogLevel level) {
  constexpr pumice_log_level kLevels[] = {PUMICE_LOG_DEBUG, PUMICE_LOG_INFO, PUMICE_LOG_WARNING,
                                          PUMICE_LOG_ERROR};
  return kLevels[static_cast<size_t>(level)];
}

}  // namespace

Result<DeviceOptions> read_device_options(const pumice_device_options* given) {
  PUMICE_TRY(const pumice_device_options options, read_optional_struct(given, "options"));
  PUMICE_TRY(const std::string_view selector, read_string(options.selector, "selector"));
  PUMICE_TRY(const std::filesystem::path directory,
             read_path(options.cache_directory, "cache_directory"));
  PUMICE_TRY(const bool validation, read_bool(options.validation, "validation"));
  PUMICE_TRY(const bool debug_log, read_bool(options.debug_log, "debug_log"));
  PUMICE_TRY(const bool low_priority, read_bool(options.low_priority, "low_priority"));
  PUMICE_TRY(std::filesystem::path whole_directory, absolute_path(directory));
  auto log = std::make_shared<host::LogQueue>();
  host::OpenOptions open{
      .cache_directory = std::move(whole_directory),
      .logger = host::LogQueue::logger(log, debug_log ? LogLevel::kDebug : LogLevel::kInfo)};
  open.device.selector = selector;
  open.device.limits.device_budget_bytes = options.memory_bytes;
  open.device.validation = validation;
  open.device.low_priority = low_priority;
  if (options.hang_timeout_us != 0) {
    open.device.hang_timeout_s = static_cast<double>(options.hang_timeout_us) * 1e-6;
  }
  return DeviceOptions{std::move(open), std::move(log)};
}

std::unique_ptr<pumice_device> make_device(std::shared_ptr<host::DeviceOwner> owner,
                                           std::shared_ptr<host::LogQueue> log) {
  auto handle = std::make_unique<pumice_device>();
  handle->log = std::move(log);
  handle->owner = std::move(owner);
  return handle;
}

}  // namespace pumice::api

using namespace pumice;
using namespace pumice::api;

pumice_status pumice_device_list(pumice_device_info* devices, size_t capacity, size_t* n_devices) {
  return guarded([&] { return list(devices, capacity, n_devices); });
}

pumice_status pumice_device_open(const pumice_device_options* options, pumice_device** device) {
  return guarded([&]() -> ApiStatus {
    if (device == nullptr) return invalid("device is NULL");
    *device = nullptr;
    Result<std::unique_ptr<pumice_device>> opened = open(options);
    if (!opened.ok()) return opened.error();
    *device = opened->release();
    return {};
  });
}

pumice_status pumice_device_get_info(const pumice_device* device, pumice_device_info* info) {
  return guarded([&]() -> ApiStatus {
    PUMICE_TRY_STATUS(check_struct(info, "info"));
    write_struct(pumice_device_info{}, info);
    PUMICE_TRY_STATUS(check_handle(device, "device"));
    write_struct(info_of(device->owner->snapshot()), info);
    return {};
  });
}

pumice_status pumice_self_test(pumice_device* device, const pumice_self_test_options* options,
                               pumice_self_test_result* result) {
  return guarded([&]() -> ApiStatus {
    PUMICE_TRY_STATUS(check_struct(result, "result"));
    write_struct(pumice_self_test_result{}, result);
    PUMICE_TRY_STATUS(check_handle(device, "device"));
    return self_test(*device, options, result);
  });
}

void pumice_device_close(pumice_device* device) {
  if (device == nullptr) return;
  (void)guarded([&]() -> ApiStatus {
    PUMICE_TRY_STATUS(check_handle(device, "device"));
    delete device;
    return {};
  });
}

pumice_status pumice_next_log(pumice_device* device, pumice_log* log) {
  return guarded([&]() -> ApiStatus {
    PUMICE_TRY_STATUS(check_struct(log, "log"));
    write_struct(pumice_log{}, log);
    PUMICE_TRY_STATUS(check_handle(device, "device"));
    host::LogQueue::Line& line = device->line;
    if (!device->log->take(line)) return {};
    write_struct(pumice_log{.struct_size = sizeof(pumice_log),
                            .level = level_of(line.level),
                            .n_dropped = line.n_dropped,
                            .line = {line.text.c_str(), line.text.size()}},
                 log);
    return {};
  });
}
