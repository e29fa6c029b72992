#include "shaders/tuning_overlay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

#include "base/check.hpp"
#include "base/output_file.hpp"
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

/// Begins the comment of a row that this program wrote.
constexpr std::string_view kMeasured = "# tuned ";

/// The table and the conditions of a line that has a row.
std::string subject_of(std::string_view line) {
  const std::string table(line.substr(0, line.find(' ')));
  const size_t begin = line.find(" if ");
  if (begin == line.npos) return table;
  const size_t end = line.find(" use ", begin);
  return table + std::string(line.substr(begin, end == line.npos ? end : end - begin));
}

/// `text` without rows that were written for the subjects of these.
std::string without(std::string_view text, std::span<const MeasuredRow> rows) {
  std::string kept;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::string row;
    if (!line.starts_with(kMeasured) || !std::getline(lines, row)) {
      kept += line + "\n";
      continue;
    }
    const bool is_replaced = std::ranges::any_of(rows, [&](const MeasuredRow& measured) {
      return subject_of(measured.text) == subject_of(row);
    });
    if (!is_replaced) kept += line + "\n" + row + "\n";
  }
  return kept;
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

Status save_tuning_overlay(const std::filesystem::path& cache_directory,
                           const vk::DeviceSnapshot& device, std::span<const MeasuredRow> rows) {
  const std::filesystem::path path = tuning_overlay_file(cache_directory, device);
  PUMICE_CHECK(!path.empty(), "there is no folder for a tuning overlay");
  std::string text;
  for (const MeasuredRow& row : rows) {
    text += fmt::format("{}{}\n{}\n", kMeasured, row.provenance, row.text);
  }
  std::error_code error;
  if (std::filesystem::exists(path, error)) {
    const std::optional<std::string> old = read_text(path);
    if (!old) {
      return make_error(ErrorCode::kBadFile, "{} cannot be read as a file of at most {} KiB",
                        to_utf8(path), kMaxFileBytes >> 10);
    }
    text += without(*old, rows);
  }
  const auto parsed = vk::parse_tuning_rows(to_utf8(path), text, ops::tuning_tables());
  if (!parsed.ok()) return parsed.error();
  std::filesystem::create_directories(cache_directory, error);  // that it failed, writing says
  PUMICE_TRY(OutputFile file, OutputFile::create(path));
  PUMICE_TRY_STATUS(file.write(text));
  return file.finish();
}

}  // namespace pumice
