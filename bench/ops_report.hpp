// What `pumice bench --ops` prints.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "bench/ops_bench.hpp"
#include "vk/device.hpp"

namespace pumice::bench {

/// Everything: device, peaks and rows with their samples in nanoseconds, so that every printed
/// number can be computed again.
nlohmann::json to_json(const OpsReport& report, const vk::Device& device);

/// Two tables in Markdown, peaks and ops, after lines that say on what and how.
std::string to_markdown(const OpsReport& report, const vk::Device& device);

}  // namespace pumice::bench
