// Rows of tuning that were measured on one device with one driver, kept beside its passport: what
// ops choose by before the rows that are built in (common/tuning.hpp). A person writes it, or a
// tuner; it has rows, as NAME.tune has, of any tables.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "base/result.hpp"
#include "vk/snapshot.hpp"
#include "vk/tuning_rows.hpp"

namespace pumice {

/// Where that of a device is. Empty if `cache_directory` is.
std::filesystem::path tuning_overlay_file(const std::filesystem::path& cache_directory,
                                          const vk::DeviceSnapshot& device);

/// Its rows, for PipelineLibrary::prefer; none if there is no file. A file with an error is ignored
/// as a whole, with a warning that names the line and what is wrong with it.
std::vector<vk::TuningRow> load_tuning_overlay(const std::filesystem::path& cache_directory,
                                               const vk::DeviceSnapshot& device,
                                               const Logger& logger);

/// A row that was measured to be faster than what was chosen before.
struct MeasuredRow {
  std::string text;        ///< the line, without a comment
  std::string provenance;  ///< one line: when, by how much, than what
};

/// Puts rows before those that the file has, which stay as they are but for rows that this function
/// wrote for the same table and conditions. There is a cache directory. Errors: those of
/// OutputFile; kBadFile where the file is not one that load_tuning_overlay would take, which is
/// then left alone.
Status save_tuning_overlay(const std::filesystem::path& cache_directory,
                           const vk::DeviceSnapshot& device, std::span<const MeasuredRow> rows);

}  // namespace pumice
