#include "vk/device_choice.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "base/ascii.hpp"
#include "base/printable.hpp"
#include "vk/plan.hpp"

namespace pumice::vk {
namespace {

int type_rank(DeviceType type) {
  constexpr int kRanks[] = {1, 3, 4, 2, 0};  // other, integrated, discrete, virtual, CPU
  return kRanks[static_cast<size_t>(type)];
}

uint64_t device_memory_bytes(const DeviceSnapshot& device) {
  uint64_t bytes = 0;
  for (const MemoryHeap& heap : device.heaps) {
    if (heap.device_local) bytes = std::max(bytes, heap.size_bytes);
  }
  return bytes;
}

std::string describe(std::span<const DeviceSnapshot> devices) {
  if (devices.empty()) {
    return "no Vulkan device was found: install a graphics driver, or mesa-vulkan-drivers to run "
           "on the CPU";
  }
  std::vector<std::string> lines;
  for (size_t i = 0; i < devices.size(); ++i) {
    const std::vector<std::string> missing = missing_requirements(devices[i]);
    lines.push_back(fmt::format("{}: {} ({}{})", i, devices[i].name,
                                missing.empty() ? "usable" : "lacks ", fmt::join(missing, ", ")));
  }
  return fmt::format("found {}", fmt::join(lines, "; "));
}

using Match = std::function<bool(const DeviceSnapshot&)>;

std::optional<size_t> best_usable(std::span<const DeviceSnapshot> devices, const Match& match) {
  std::optional<size_t> best;
  for (size_t i = 0; i < devices.size(); ++i) {
    if (!match(devices[i]) || !missing_requirements(devices[i]).empty()) continue;
    const auto key = [&](size_t k) {
      return std::pair(type_rank(devices[k].type), device_memory_bytes(devices[k]));
    };
    if (!best || key(i) > key(*best)) best = i;
  }
  return best;
}

// The best match, or why a match cannot be used; nothing if nothing matches.
std::optional<Result<size_t>> pick(std::span<const DeviceSnapshot> devices, const Match& match) {
  if (const auto best = best_usable(devices, match)) return Result<size_t>(*best);
  const auto found = std::ranges::find_if(devices, match);
  if (found == devices.end()) return std::nullopt;
  return Result<size_t>(make_error(ErrorCode::kNoDevice, "device {} cannot be used: it lacks {}",
                                   found->name, fmt::join(missing_requirements(*found), ", ")));
}

Error no_match(std::span<const DeviceSnapshot> devices, std::string_view selector) {
  return make_error(ErrorCode::kNoDevice,
                    "no device matches \"{}\" (an index, a name or a UUID): {}",
                    printable(selector), describe(devices));
}

}  // namespace

Result<size_t> choose_device(std::span<const DeviceSnapshot> devices, std::string_view selector) {
  if (selector.empty()) {
    if (const auto best = best_usable(devices, [](const DeviceSnapshot&) { return true; })) {
      return *best;
    }
    return make_error(ErrorCode::kNoDevice, "no usable device: {}", describe(devices));
  }
  const auto index = parse_whole<size_t>(selector);
  if (index && *index < devices.size()) {
    const DeviceSnapshot* wanted = &devices[*index];
    return *pick(devices, [&](const DeviceSnapshot& device) { return &device == wanted; });
  }
  // "4090" may be part of a name; "9" is an index that does not exist, whatever names contain it.
  constexpr size_t kMaxIndexDigits = 2;
  if (index && selector.size() <= kMaxIndexDigits) return no_match(devices, selector);

  const std::string text = lower_case(selector);
  std::string digits = text;
  std::erase(digits, '-');
  const Match matches[] = {
      [&](const DeviceSnapshot& device) {
        std::string uuid = format_uuid(device.device_uuid);
        std::erase(uuid, '-');
        return uuid == digits;
      },
      [&](const DeviceSnapshot& device) { return lower_case(device.name) == text; },
      [&](const DeviceSnapshot& device) { return lower_case(device.name).find(text) != text.npos; },
  };
  for (const Match& match : matches) {
    if (auto picked = pick(devices, match)) return std::move(*picked);
  }
  return no_match(devices, selector);
}

}  // namespace pumice::vk
