// The self-test of a device, whose verdict is kept for later runs.
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "base/result.hpp"
#include "shaders/op_case.hpp"
#include "shaders/self_test.hpp"
#include "vk/device.hpp"

namespace pumice::host {

/// The cases of `ops`, names separated by commas; all if it is empty. Errors (kInvalidArgument): no
/// such op; the message has those there are.
Result<std::vector<ops::OpCase>> self_test_cases(std::string_view ops);

/// Keeps verdicts in a cache directory, if that is not empty. That one cannot be kept is warned of
/// once. Any thread.
class VerdictKeeper {
 public:
  /// What is passed outlives it.
  VerdictKeeper(std::filesystem::path cache_directory, const vk::Device& device,
                const Logger& logger)
      : cache_directory_(std::move(cache_directory)), device_(device), logger_(logger) {}

  void keep(const SelfTestVerdict& verdict);
  /// What was kept last, but that nothing runs: a case that is cut short has not failed, and its
  /// kernels are not to blame. Returns soon, though keeping may hang in a write that never ends.
  void keep_interrupted();

 private:
  void save(const SelfTestVerdict& verdict);

  const std::filesystem::path cache_directory_;
  const vk::Device& device_;
  const Logger& logger_;
  std::timed_mutex mutex_;
  std::optional<SelfTestVerdict> last_;  // guarded, as the next
  bool has_warned_ = false;
};

/// Runs cases on what the device's tuning prefers, beginning with what is known of other modules.
/// The verdict is kept before each case, as a driver may take the process down, and the machine with
/// it, and at the end; with an empty cache directory nothing is read or kept.
SelfTestResult test_device(const std::shared_ptr<vk::Device>& device,
                           const std::filesystem::path& cache_directory, VerdictKeeper& keeper,
                           std::vector<ops::OpCase> cases, const SelfTestOptions& options,
                           const Logger& logger);

/// Errors: why it ended early; kSelfTestFailed where an op is left without a variant that is right,
/// or cases could not run.
Status self_test_status(const vk::DeviceSnapshot& device, const SelfTestResult& result);

}  // namespace pumice::host
