// What steps cost, remembered from run to run: a few numbers in a JSON file of the cache directory,
// one file for each device, driver, model, KV type and arithmetic.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>

#include "base/log.hpp"
#include "engine/engine.hpp"
#include "scheduler/cost_model.hpp"
#include "vk/snapshot.hpp"

namespace pumice {

/// Where the costs of such an engine on a model (Model::fingerprint) are kept; empty, which is
/// nowhere, if `cache_directory` is.
std::filesystem::path cost_file(const std::filesystem::path& cache_directory,
                                const vk::DeviceSnapshot& device,
                                const std::array<uint64_t, 2>& model_fingerprint,
                                const EngineOptions& options);

/// One that knows nothing if there is no file. A file that is not ours to the last number is
/// ignored with a warning.
CostModel read_cost(const std::filesystem::path& path, const Logger& logger);

/// Nothing is written of a model that knows nothing, nor to an empty path. That it cannot be
/// written is a warning.
void write_cost(const std::filesystem::path& path, const CostModel& cost, const Logger& logger);

}  // namespace pumice
