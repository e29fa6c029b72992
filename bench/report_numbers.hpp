// What reports have in common.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "bench/roofline.hpp"

namespace pumice::bench {

/// Three significant digits, whole from 100 on.
std::string short_number(double value);

/// "bytes_per_ns", and "flops_per_ns" by the name of the arithmetic.
nlohmann::json to_json(const Roofline& roofline);

}  // namespace pumice::bench
