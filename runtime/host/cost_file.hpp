// What steps and their commands cost, remembered from run to run: a few numbers in a JSON file of
// the cache directory, one file for each device, driver, model, KV type and arithmetic.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>

#include "base/log.hpp"
#include "engine/engine.hpp"
#include "engine/pace.hpp"
#include "scheduler/cost_model.hpp"
#include "vk/snapshot.hpp"

namespace pumice::host {

struct LearnedCosts {
  CostModel steps = {};
  std::optional<PaceRates> pace = {};
};

/// Where the costs of such an engine on a model (Model::fingerprint) are kept; empty, which is
/// nowhere, if `cache_directory` is.
std::filesystem::path cost_file(const std::filesystem::path& cache_directory,
                                const vk::DeviceSnapshot& device,
                                const std::array<uint64_t, 2>& model_fingerprint,
                                const EngineOptions& options);

/// Such as know nothing if there is no file. A file that is not ours to the last number is ignored
/// with a warning; one may have no pace, as those of earlier versions.
LearnedCosts read_costs(const std::filesystem::path& path, const Logger& logger);

/// Nothing is written if nothing is known of steps, nor to an empty path. That it cannot be written
/// is a warning.
void write_costs(const std::filesystem::path& path, const LearnedCosts& costs,
                 const Logger& logger);

}  // namespace pumice::host
