#include "bench/machine_state.hpp"

#include <fmt/chrono.h>
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "base/dynamic_library.hpp"
#include "base/path.hpp"
#include "base/processor.hpp"

namespace pumice::bench {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr const char* kClock = "clock_mhz";
constexpr const char* kMemoryClock = "memory_clock_mhz";
constexpr const char* kTemperature = "temperature_c";
constexpr const char* kPower = "power_w";
constexpr const char* kGpuKeys[] = {kClock, kMemoryClock, kTemperature, kPower};

/// The first line of a small file; nothing if it cannot be read.
std::optional<std::string> line_of(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

std::optional<double> number_in(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

std::optional<double> number_of(const fs::path& path) {
  const std::optional<std::string> line = line_of(path);
  return line ? number_in(*line) : std::nullopt;
}

/// Keys that have no value yet are absent for `reason`.
void name_absent(Json& reading, std::span<const char* const> keys, const std::string& reason) {
  for (const char* key : keys) {
    if (!reading.contains(key)) reading["absent"][key] = reason;
  }
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) entries.push_back(entry.path());
  std::ranges::sort(entries);
  return entries;
}

/// "cardN" folders of devices with these ids.
std::vector<fs::path> cards_of(uint32_t vendor_id, uint32_t device_id, const fs::path& root) {
  std::vector<fs::path> cards;
  for (const fs::path& card : entries_of(root / "sys/class/drm")) {
    const std::string name = to_utf8(card.filename());
    if (!name.starts_with("card") || name.find('-') != std::string::npos) continue;
    if (line_of(card / "device/vendor") == fmt::format("0x{:04x}", vendor_id) &&
        line_of(card / "device/device") == fmt::format("0x{:04x}", device_id)) {
      cards.push_back(card);
    }
  }
  return cards;
}

/// The level that a list of them marks: "1: 1800Mhz *".
std::optional<double> marked_level(const fs::path& path) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.find('*') != std::string::npos && colon != std::string::npos) {
      return number_in(std::string_view(line).substr(colon + 2));
    }
  }
  return std::nullopt;
}

/// NVIDIA's management library, as far as it is needed; its interface is stable and needs no header
/// this way.
class Nvml {
 public:
  Nvml() : library_(DynamicLibrary::open({"libnvidia-ml.so.1", "nvml.dll"})) {
    const auto init = function<int()>("nvmlInit_v2");
    ready_ = init != nullptr && init() == 0;
  }
  ~Nvml() {
    if (!ready_) return;
    if (const auto shutdown = function<int()>("nvmlShutdown")) shutdown();
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  /// Null if it does not know this device.
  Json read(const vk::Uuid& uuid) const {
    const auto find = function<int(const char*, void**)>("nvmlDeviceGetHandleByUUID");
    void* device = nullptr;
    const std::string name = "GPU-" + vk::format_uuid(uuid);
    if (!ready_ || find == nullptr || find(name.c_str(), &device) != 0) return nullptr;
    Json reading{{"source", "NVML"}};
    constexpr int kGraphicsClock = 0;
    constexpr int kMemory = 2;
    constexpr int kGpuTemperature = 0;
    unsigned value = 0;
    if (const auto clock = function<int(void*, int, unsigned*)>("nvmlDeviceGetClockInfo")) {
      if (clock(device, kGraphicsClock, &value) == 0) reading[kClock] = value;
      if (clock(device, kMemory, &value) == 0) reading[kMemoryClock] = value;
    }
    if (const auto degrees = function<int(void*, int, unsigned*)>("nvmlDeviceGetTemperature")) {
      if (degrees(device, kGpuTemperature, &value) == 0) reading[kTemperature] = value;
    }
    if (const auto milliwatts = function<int(void*, unsigned*)>("nvmlDeviceGetPowerUsage")) {
      if (milliwatts(device, &value) == 0) reading[kPower] = value / 1e3;
    }
    name_absent(reading, kGpuKeys, "not reported by NVML");
    return reading;
  }

 private:
  template <typename Signature>
  Signature* function(const char* name) const {
    return library_.function<Signature>(name);
  }

  DynamicLibrary library_;
  bool ready_ = false;
};

/// Budget and usage of each heap now; budgets are 0 where the driver has no VK_EXT_memory_budget.
Json read_heaps(const vk::Device& device) {
  Json heaps = Json::array();
  const Result<std::vector<vk::DeviceSnapshot>> snapshots = device.instance()->snapshots();
  if (!snapshots.ok()) return heaps;
  const auto same = std::ranges::find(*snapshots, device.snapshot().device_uuid,
                                      &vk::DeviceSnapshot::device_uuid);
  if (same == snapshots->end()) return heaps;
  for (const vk::MemoryHeap& heap : same->heaps) {
    if (heap.budget_bytes == 0) continue;
    heaps.push_back({{"budget_bytes", heap.budget_bytes}, {"usage_bytes", heap.usage_bytes}});
  }
  return heaps;
}

}  // namespace

Json read_processor(const fs::path& root) {
  constexpr const char* kKeys[] = {"name", kClock, "governor", "load_1m"};
  const ProcessorState state = read_processor_state(root);
  Json reading{{"cores", state.n_cores}};
  if (!state.name.empty()) reading["name"] = state.name;
  if (!state.clocks_mhz.empty()) {
    const auto [least, most] = std::ranges::minmax(state.clocks_mhz);
    reading[kClock] = {least, most};
  }
  if (!state.governor.empty()) reading["governor"] = state.governor;
  if (state.load_1m) reading["load_1m"] = *state.load_1m;
  name_absent(reading, kKeys, "not reported by the operating system");
  return reading;
}

Json read_sysfs_gpu(uint32_t vendor_id, uint32_t device_id, const fs::path& root) {
  Json reading;
  const std::vector<fs::path> cards = cards_of(vendor_id, device_id, root);
  if (cards.size() != 1) {
    name_absent(
        reading, kGpuKeys,
        cards.empty()
            ? "no driver reports on this device"
            : fmt::format("{} devices of this kind, and no way to tell them apart", cards.size()));
    return reading;
  }
  reading["source"] = "sysfs";
  const fs::path& card = cards[0];
  const auto set = [&](const char* key, std::optional<double> value, double unit) {
    if (value && !reading.contains(key)) reading[key] = *value * unit;
  };
  for (const fs::path& sensors : entries_of(card / "device/hwmon")) {
    set(kClock, number_of(sensors / "freq1_input"), 1e-6);
    set(kMemoryClock, number_of(sensors / "freq2_input"), 1e-6);
    set(kTemperature, number_of(sensors / "temp1_input"), 1e-3);
    set(kPower, number_of(sensors / "power1_average"), 1e-6);
    set(kPower, number_of(sensors / "power1_input"), 1e-6);
  }
  set(kClock, marked_level(card / "device/pp_dpm_sclk"), 1);
  set(kMemoryClock, marked_level(card / "device/pp_dpm_mclk"), 1);
  set(kClock, number_of(card / "gt_act_freq_mhz"), 1);
  name_absent(reading, kGpuKeys, "not reported by its driver");
  return reading;
}

Json read_machine(const vk::Device& device) {
  const vk::DeviceSnapshot& snapshot = device.snapshot();
  Json reading{{"time", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))},
               {"processor", read_processor()},
               {"heaps", read_heaps(device)}};
  if (reading["heaps"].empty()) {
    reading["absent"]["heaps"] = "the driver has no VK_EXT_memory_budget";
  }
  if (snapshot.type == vk::DeviceType::kCpu) {
    reading["absent"]["gpu"] = "the device is the processor";
    return reading;
  }
  reading["gpu"] = Nvml().read(snapshot.device_uuid);
  if (reading["gpu"].is_null()) {
    reading["gpu"] = read_sysfs_gpu(snapshot.vendor_id, snapshot.device_id);
  }
  return reading;
}

}  // namespace pumice::bench
