#include "host/cost_file.hpp"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "base/json.hpp"
#include "base/output_file.hpp"
#include "base/path.hpp"

namespace pumice::host {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxFileBytes = 1 << 16;  // ours are a few lines

constexpr std::pair<const char*, double PaceRates::*> kRates[] = {
    {"ns_per_segment", &PaceRates::per_segment},
    {"ns_per_command", &PaceRates::per_command},
    {"ns_per_byte", &PaceRates::per_byte},
    {"ns_per_flop", &PaceRates::per_flop},
};
constexpr const char* kPace = "pace";  // the member that has them

Json json_of(const PaceRates& pace) {
  Json json;
  for (const auto& [name, member] : kRates) json[name] = pace.*member;
  return json;
}

/// Errors: kBadFile for a rate that is missing or out of range.
Result<PaceRates> pace_from_json(const Json& json) {
  PaceRates pace;
  for (const auto& [name, member] : kRates) {
    if (!json.is_object() || !json.contains(name) || !json[name].is_number()) {
      return make_error(ErrorCode::kBadFile, "pace: the number \"{}\" is missing", name);
    }
    pace.*member = json[name].get<double>();
    if (!(pace.*member >= PaceRates::kLeast && pace.*member <= PaceRates::kMost)) {
      return make_error(ErrorCode::kBadFile, "pace: \"{}\" must be {:g} to {:g}", name,
                        PaceRates::kLeast, PaceRates::kMost);
    }
  }
  return pace;
}

Result<LearnedCosts> read(const std::filesystem::path& path) {
  PUMICE_TRY(const Json json, read_json_file(path, kMaxFileBytes));
  PUMICE_TRY(const StepCost steps, step_cost_from_json(json));
  LearnedCosts costs{.steps = CostModel(steps)};
  if (json.contains(kPace)) {
    PUMICE_TRY(costs.pace, pace_from_json(json[kPace]));
  }
  return costs;
}

}  // namespace

std::filesystem::path cost_file(const std::filesystem::path& cache_directory,
                                const vk::DeviceSnapshot& device,
                                const std::array<uint64_t, 2>& model_fingerprint,
                                const EngineOptions& options) {
  if (cache_directory.empty()) return {};
  return cache_directory / fmt::format("cost-{}-{:x}-{:016x}-{}-{}.json",
                                       vk::format_uuid(device.device_uuid), device.driver_version,
                                       model_fingerprint[0], options.kv_type.name(),
                                       static_cast<int>(options.math));
}

LearnedCosts read_costs(const std::filesystem::path& path, const Logger& logger) {
  std::error_code error;
  if (path.empty() || !std::filesystem::exists(path, error)) return {};
  Result<LearnedCosts> costs = read(path);
  if (!costs.ok()) {
    logger.warning("{} is not used: {}", to_utf8(path), costs.error().message);
    return {};
  }
  logger.info("cost model of earlier runs from {}", to_utf8(path));
  return std::move(costs).value();
}

void write_costs(const std::filesystem::path& path, const LearnedCosts& costs,
                 const Logger& logger) {
  if (path.empty() || !costs.steps.calibrated()) return;
  Json json = costs.steps.cost();
  if (costs.pace) json[kPace] = json_of(*costs.pace);
  const Status written = write_cache_file(path, json.dump(2) + "\n");
  if (!written.ok()) logger.warning("the cost model was not saved: {}", written.error().message);
}

}  // namespace pumice::host
