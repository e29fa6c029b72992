#include "engine/pace.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace pumice {
namespace {

uint64_t amount(double value) {
  return value < 1e18 ? std::max<uint64_t>(1, static_cast<uint64_t>(value))
                      : vk::SegmentLimit::kNone;
}

}  // namespace

double Pace::predict_ns(const vk::Cost& cost) const {
  return std::max(static_cast<double>(cost.bytes) * rates_.ns_per_byte,
                  static_cast<double>(cost.flops) * rates_.ns_per_flop);
}

vk::SegmentLimit Pace::limit(double ns) const {
  return {.bytes = amount(ns / rates_.ns_per_byte), .flops = amount(ns / rates_.ns_per_flop)};
}

void Pace::observe(std::span<const vk::Cost> costs, std::span<const double> ns) {
  PUMICE_CHECK(ns.size() == costs.size() || ns.size() == 1, "a time for all pieces or for each");
  struct Bound {
    double predicted_ns = 0;
    double measured_ns = 0;
  };
  Bound bytes, flops;
  for (size_t i = 0; i < costs.size(); ++i) {
    const double predicted = predict_ns(costs[i]);
    const double measured = ns.size() == costs.size() ? ns[i] : 0;
    if (!(predicted > 0) || !(measured >= 0)) continue;
    const double by_bytes = static_cast<double>(costs[i].bytes) * rates_.ns_per_byte;
    Bound& bound = by_bytes >= predicted ? bytes : flops;
    bound.predicted_ns += predicted;
    bound.measured_ns += measured;
  }
  if (ns.size() != costs.size()) {  // a time for all: shared out as predicted
    const double scale = ns[0] / (bytes.predicted_ns + flops.predicted_ns);
    bytes.measured_ns = scale * bytes.predicted_ns;
    flops.measured_ns = scale * flops.predicted_ns;
  }
  const auto correct = [](double& rate, const Bound& bound) {
    const double off = bound.measured_ns / bound.predicted_ns;
    if (off > 0 && off < 1e9) rate *= 0.5 + 0.5 * off;
  };
  correct(rates_.ns_per_byte, bytes);
  correct(rates_.ns_per_flop, flops);
}

}  // namespace pumice
