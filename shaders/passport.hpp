// The driver passport: what a device's self-test found out, remembered in one JSON file for each
// (device UUID, driver, shader hash) in the cache directory. A driver update or another build's
// shaders have another file, so an old verdict is never applied to them.
//
// { "format": 1,
//   "device": {"name": …, "device_uuid": …, "driver_uuid": …, "driver_version": …, "driver_info":
//   …}, "shader_hash": "0123456789abcdef", "running": "" or "op case", "running_modules": […], //
//   where a test ended, if it did "modules": {"gemm.q4_k.broadcast": {"state": "passed",
//   "n_passed": 12, "note": ""}, …} }
//
// Whatever else a file holds is a reason not to believe any of it: every module of this build and
// no other must be in it.
#pragma once

#include <filesystem>
#include <optional>

#include "base/file.hpp"
#include "base/log.hpp"
#include "base/result.hpp"
#include "shaders/self_test.hpp"
#include "vk/pipeline.hpp"
#include "vk/snapshot.hpp"

namespace pumice {

/// Where the passport of a device is, for the shaders of this build. Empty if `cache_directory` is.
std::filesystem::path passport_file(const std::filesystem::path& cache_directory,
                                    const vk::DeviceSnapshot& device);

/// A lock to hold while the device's self-test runs: that a case is running is no sign then that the
/// last test ended there. Not open where another one holds it, or it cannot be had.
File lock_passport(const std::filesystem::path& cache_directory, const vk::DeviceSnapshot& device);

/// Nothing if there is none. A file that is damaged, or made up, is ignored with a warning; one of
/// another driver build with a debug line. While a self-test runs (lock_passport): what it has found
/// out so far.
std::optional<SelfTestVerdict> load_passport(const std::filesystem::path& cache_directory,
                                             const vk::DeviceSnapshot& device,
                                             const Logger& logger);

/// Errors: kInternal when it cannot be written.
Status save_passport(const std::filesystem::path& cache_directory, const vk::DeviceSnapshot& device,
                     const SelfTestVerdict& verdict);

/// One line for each rejected module of a family that `pipelines` has declared from: what is wrong
/// and what is used in its place.
std::vector<std::string> replacements(const vk::PipelineLibrary& pipelines,
                                      const SelfTestVerdict& verdict);

}  // namespace pumice
