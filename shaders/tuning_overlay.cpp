#include "shaders/tuning_overlay.hpp"

#include <fmt/format.h>

#include <fstream>
#include <optional>
#include <string>

#include "base/path.hpp"
#include "shaders/common/tuning.hpp"

namespace pumice {
namespace {

constexpr uintmax_t kMaxFileBytes = 1 << 20;

/// Nothing for what is no regular file of that size, or cannot be read.
std::optional<std::string> read_text(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return std::nullopt;
  const uintmax_t n_bytes = std::filesystem::file_size(path, error);
  if (error || n_bytes > kMaxFileBytes) return std::nullopt;
  std::string text(n_bytes, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(text.data(), static_cast<std::streamsize>(n_bytes));
  if (!file) return std::nullopt;
  return text;
}

}  // namespace

std::filesystem::path tuning_overlay_file(const std::filesystem::path& cache_directory,
                                          const vk::DeviceSnapshot& device) {
  if (cache_directory.empty()) return {};
  return cache_directory / fmt::format("tuning-{}-{:x}.tune", vk::format_uuid(device.device_uuid),
                                       device.driver_version);
}

std::vector<vk::TuningRow> load_tuning_overlay(const std::filesystem::path& cache_directory,
                                               const vk::DeviceSnapshot& device,
                                               const Logger& logger) {
  const std::filesystem::path path = tuning_overlay_file(cache_directory, device);
  std::error_code error;
  if (path.empty() || !std::filesystem::exists(path, error)) return {};
  const std::optional<std::string> text = read_text(path);
  if (!text) {
    logger.warning("{} cannot be read as a file of at most {} KiB; its rows are ignored",
                   to_utf8(path), kMaxFileBytes >> 10);
    return {};
  }
  auto rows = vk::parse_tuning_rows(to_utf8(path), *text, ops::tuning_tables());
  if (!rows.ok()) {
    logger.warning("{}; all rows of the file are ignored", rows.error().message);
    return {};
  }
  logger.info("{} has {} rows of tuning", to_utf8(path), rows->size());
  return *std::move(rows);
}

}  // namespace pumice
