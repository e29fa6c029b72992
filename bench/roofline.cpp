#include "bench/roofline.hpp"

#include <algorithm>
#include <map>

namespace pumice::bench {

Limit limit_of(const Roofline& roofline, const vk::Cost& cost) {
  const auto time = [](uint64_t amount, double per_ns) {
    return per_ns > 0 ? static_cast<double>(amount) / per_ns : 0.0;
  };
  const double moving = time(cost.bytes, roofline.bytes_per_ns);
  const double computing = time(cost.flops, roofline.peak(cost.arithmetic));
  if (moving == 0 && computing == 0) return {};
  if (moving >= computing) return {moving, "bandwidth"};
  return {computing, std::string(vk::arithmetic_name(cost.arithmetic))};
}

Limit limit_of(const Roofline& roofline, std::span<const TimedCommand> commands) {
  std::map<std::string, double> ns_by_bound;
  Limit total;
  for (const TimedCommand& command : commands) {
    const Limit limit = limit_of(roofline, command.cost);
    total.ns += limit.ns;
    ns_by_bound[limit.what] += limit.ns;
  }
  const auto most =
      std::ranges::max_element(ns_by_bound, [](auto& a, auto& b) { return a.second < b.second; });
  if (most != ns_by_bound.end()) total.what = most->first;
  return total;
}

}  // namespace pumice::bench
