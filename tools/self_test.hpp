// The self-test of a device, and what is known of its kernels.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "base/log.hpp"
#include "base/result.hpp"
#include "shaders/self_test.hpp"
#include "tools/device_options.hpp"
#include "vk/pipeline.hpp"

namespace pumice::tools {

/// Run the cases of `ops` (names separated by commas; all if empty) on the chosen device, remember
/// the verdict and print it. Errors: kSelfTestFailed when an op is left without a variant,
/// kDeviceLost, kCancelled, kInvalidArgument for an unknown op.
Status run_self_test_command(const DeviceOptions& options, const std::string& ops, bool json,
                             const Logger& logger);

/// A line about the kernels of a device, and one for each that failed.
void print_kernel_summary(const vk::DevicePlan& plan,
                          const std::optional<SelfTestVerdict>& verdict);
/// What `info -v` says about them: in this build, runs here, self-tested.
void print_kernels(const vk::DevicePlan& plan, const std::optional<SelfTestVerdict>& verdict);
nlohmann::json describe_kernels(const vk::DevicePlan& plan,
                                const std::optional<SelfTestVerdict>& verdict);

}  // namespace pumice::tools
