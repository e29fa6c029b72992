#include "bench/report_numbers.hpp"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

namespace pumice::bench {

std::string short_number(double value) {
  if (value == 0) return "0";
  return value >= 100 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value);
}

nlohmann::json to_json(const Roofline& roofline) {
  nlohmann::json json{{"bytes_per_ns", roofline.bytes_per_ns}};
  for (size_t i = 0; i < vk::kArithmeticCount; ++i) {
    const auto arithmetic = static_cast<vk::Arithmetic>(i);
    json["flops_per_ns"][std::string(vk::arithmetic_name(arithmetic))] = roofline.peak(arithmetic);
  }
  return json;
}

}  // namespace pumice::bench
