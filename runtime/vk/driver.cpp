#include "vk/driver.hpp"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <string_view>
#include <utility>

namespace pumice::vk {
namespace {

constexpr std::pair<uint32_t, std::string_view> kNames[] = {
    {VK_DRIVER_ID_AMD_PROPRIETARY, "amd_proprietary"},
    {VK_DRIVER_ID_AMD_OPEN_SOURCE, "amd_open_source"},
    {VK_DRIVER_ID_MESA_RADV, "mesa_radv"},
    {VK_DRIVER_ID_NVIDIA_PROPRIETARY, "nvidia_proprietary"},
    {VK_DRIVER_ID_INTEL_PROPRIETARY_WINDOWS, "intel_proprietary_windows"},
    {VK_DRIVER_ID_INTEL_OPEN_SOURCE_MESA, "intel_open_source_mesa"},
    {VK_DRIVER_ID_IMAGINATION_PROPRIETARY, "imagination_proprietary"},
    {VK_DRIVER_ID_QUALCOMM_PROPRIETARY, "qualcomm_proprietary"},
    {VK_DRIVER_ID_ARM_PROPRIETARY, "arm_proprietary"},
    {VK_DRIVER_ID_GOOGLE_SWIFTSHADER, "google_swiftshader"},
    {VK_DRIVER_ID_BROADCOM_PROPRIETARY, "broadcom_proprietary"},
    {VK_DRIVER_ID_MESA_LLVMPIPE, "mesa_llvmpipe"},
    {VK_DRIVER_ID_MOLTENVK, "moltenvk"},
    {VK_DRIVER_ID_MESA_TURNIP, "mesa_turnip"},
    {VK_DRIVER_ID_MESA_V3DV, "mesa_v3dv"},
    {VK_DRIVER_ID_MESA_PANVK, "mesa_panvk"},
    {VK_DRIVER_ID_SAMSUNG_PROPRIETARY, "samsung_proprietary"},
    {VK_DRIVER_ID_MESA_VENUS, "mesa_venus"},
    {VK_DRIVER_ID_MESA_DOZEN, "mesa_dozen"},
    {VK_DRIVER_ID_MESA_NVK, "mesa_nvk"},
};

std::string_view name_of(uint32_t driver_id) {
  const auto* known =
      std::ranges::find(kNames, driver_id, &std::pair<uint32_t, std::string_view>::first);
  return known != std::end(kNames) ? known->second : "unknown";
}

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

/// The first word of digits with dots between, at least one dot; at most three numbers of it.
std::array<uint32_t, 3> version_in(std::string_view text) {
  for (size_t begin = 0; begin < text.size(); ++begin) {
    if (!is_digit(text[begin]) || (begin > 0 && text[begin - 1] != ' ')) continue;
    std::array<uint32_t, 3> version = {};
    size_t at = begin;
    size_t n = 0;
    while (n < version.size() && at < text.size() && is_digit(text[at])) {
      for (; at < text.size() && is_digit(text[at]); ++at) {
        const auto digit = static_cast<uint32_t>(text[at] - '0');
        version[n] = version[n] > 99'999'999 ? version[n] : version[n] * 10 + digit;
      }
      ++n;
      if (at == text.size() || text[at] != '.') break;
      ++at;
    }
    if (n > 1) return version;
  }
  return {};
}

/// Products of AMD's before RDNA 3, which has the first matrix units.
bool is_amd_without_matrix_units(const std::string& name) {
  static constexpr std::string_view kProducts[] = {
      "RX 4",   "RX 5",   "RX 6",    "RX Vega", "Radeon VII",      "R7 ",         "R9 ",  "Pro WX ",
      "PRO W5", "PRO W6", "Pro VII", "Vega",    "Radeon(TM) 610M", "Radeon 610M", "660M", "680M"};
  return std::ranges::any_of(
      kProducts, [&](std::string_view product) { return name.find(product) != std::string::npos; });
}

}  // namespace

DriverFacts driver_facts(const DeviceSnapshot& snapshot) {
  const bool amds_own = snapshot.driver_id == VK_DRIVER_ID_AMD_PROPRIETARY ||
                        snapshot.driver_id == VK_DRIVER_ID_AMD_OPEN_SOURCE;
  return {.name = std::string(name_of(snapshot.driver_id)),
          .version = version_in(snapshot.driver_info),
          // AMD's own drivers advertise matrices on GPUs before RDNA 3 (recorded of an RX 6800 XT).
          .emulates_matrices = amds_own && snapshot.features.cooperative_matrix &&
                               is_amd_without_matrix_units(snapshot.name)};
}

}  // namespace pumice::vk
