#include "host/self_test.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/printable.hpp"
#include "shaders/passport.hpp"
#include "shaders/spirv.hpp"
#include "shaders/tuning_overlay.hpp"
#include "vk/pipeline.hpp"

namespace pumice::host {
namespace {

constexpr auto kPatience = std::chrono::milliseconds(200);

std::set<std::string, std::less<>> names_of(std::string_view list) {
  std::set<std::string, std::less<>> names;
  while (!list.empty()) {
    const size_t end = std::min(list.find(','), list.size());
    names.emplace(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return names;
}

}  // namespace

Result<std::vector<ops::OpCase>> self_test_cases(std::string_view ops) {
  std::vector<ops::OpCase> cases = ops::all_op_cases();
  if (ops.empty()) return cases;
  std::set<std::string> known;
  for (const ops::OpCase& test : cases) known.insert(test.op);
  const std::set<std::string, std::less<>> names = names_of(ops);
  for (const std::string& name : names) {
    if (known.contains(name)) continue;
    return make_error(ErrorCode::kInvalidArgument, "unknown operation '{}': use {}",
                      printable(name), fmt::join(known, ", "));
  }
  std::erase_if(cases, [&](const ops::OpCase& test) { return !names.contains(test.op); });
  return cases;
}

void VerdictKeeper::keep(const SelfTestVerdict& verdict) {
  const std::lock_guard lock(mutex_);
  last_ = verdict;
  save(verdict);
}

void VerdictKeeper::keep_interrupted() {
  const std::unique_lock lock(mutex_, kPatience);
  if (!lock || !last_) return;
  last_->running.clear();
  last_->running_modules.clear();
  save(*last_);
}

void VerdictKeeper::save(const SelfTestVerdict& verdict) {
  if (cache_directory_.empty()) return;
  const Status saved = save_passport(cache_directory_, device_.snapshot(), verdict);
  if (saved.ok() || std::exchange(has_warned_, true)) return;
  logger_.warning("the verdict is not remembered: {}", saved.error().message);
}

SelfTestResult test_device(const std::shared_ptr<vk::Device>& device,
                           const std::filesystem::path& cache_directory, VerdictKeeper& keeper,
                           std::vector<ops::OpCase> cases, const SelfTestOptions& options,
                           const Logger& logger) {
  vk::PipelineLibrary pipelines(device, cache_directory, spirv_hash());
  std::optional<SelfTestVerdict> earlier;
  File lock;
  if (!cache_directory.empty()) {
    earlier = load_passport(cache_directory, device->snapshot(), logger);
    lock = lock_passport(cache_directory, device->snapshot());
    pipelines.prefer(load_tuning_overlay(cache_directory, device->snapshot(), logger));
  }
  SelfTestOptions watched = options;
  watched.on_case = [&](const SelfTestVerdict& verdict, size_t done, size_t total) {
    if (options.on_case) options.on_case(verdict, done, total);
    keeper.keep(verdict);
  };
  SelfTestResult result =
      run_self_test(pipelines, std::move(cases), earlier.value_or(SelfTestVerdict{}), watched);
  keeper.keep(result.verdict);
  pipelines.save();
  return result;
}

Status self_test_status(const vk::DeviceSnapshot& device, const SelfTestResult& result) {
  PUMICE_TRY_STATUS(result.status);
  if (const auto broken = result.verdict.broken_families(); !broken.empty()) {
    return make_error(ErrorCode::kSelfTestFailed,
                      "self-test: {} cannot be used for {}: no variant gives right results",
                      device.name, fmt::join(broken, ", "));
  }
  if (!result.errors.empty()) {
    return make_error(ErrorCode::kSelfTestFailed, "self-test: {} of {} cases could not run: {}",
                      result.errors.size(), result.n_cases, result.errors.front());
  }
  return {};
}

}  // namespace pumice::host
