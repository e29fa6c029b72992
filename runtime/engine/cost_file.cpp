#include "engine/cost_file.hpp"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>

#include "base/output_file.hpp"

namespace pumice {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxFileBytes = 1 << 16;  // ours are a few lines

Result<StepCost> read(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return make_error(ErrorCode::kBadFile, "it is a directory");
  }
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxFileBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMaxFileBytes) return make_error(ErrorCode::kBadFile, "it is too large");
  return step_cost_from_json(Json::parse(text, nullptr, false));
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

CostModel read_cost(const std::filesystem::path& path, const Logger& logger) {
  std::error_code error;
  if (path.empty() || !std::filesystem::exists(path, error)) return {};
  const Result<StepCost> cost = read(path);
  if (!cost.ok()) {
    logger.warning("{} is not used: {}", path.string(), cost.error().message);
    return {};
  }
  logger.info("cost model of earlier runs from {}", path.string());
  return CostModel(*cost);
}

void write_cost(const std::filesystem::path& path, const CostModel& cost, const Logger& logger) {
  if (path.empty() || !cost.calibrated()) return;
  const Status written = write_cache_file(path, Json(cost.cost()).dump(2) + "\n");
  if (!written.ok()) logger.warning("cost model is not kept: {}", written.error().message);
}

}  // namespace pumice
