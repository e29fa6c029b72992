// How fast a kernel could be: the later of moving its bytes and doing its flops at the speeds that
// the device was measured to reach. Williams, Waterman and Patterson, "Roofline", 2009.
#pragma once

#include <array>
#include <span>
#include <string>

#include "vk/recorder.hpp"

namespace pumice::bench {

/// Measured speeds; 0 where nothing was measured, which then limits nothing.
struct Roofline {
  double bytes_per_ns = 0;                                  ///< = GB/s
  std::array<double, vk::kArithmeticCount> flops_per_ns{};  ///< = GFLOP/s, by vk::Arithmetic

  double& peak(vk::Arithmetic a) { return flops_per_ns.at(static_cast<size_t>(a)); }
  double peak(vk::Arithmetic a) const { return flops_per_ns.at(static_cast<size_t>(a)); }
};

/// A command as it was timed.
struct TimedCommand {
  std::string label;  ///< of its pipeline, or "copy", "fill"
  vk::Cost cost;
};

struct Limit {
  double ns = 0;     ///< no kernel can be faster, by the measured speeds
  std::string what;  ///< "bandwidth" or an arithmetic's name; empty if nothing limits
};

Limit limit_of(const Roofline& roofline, const vk::Cost& cost);

/// Of commands one after the other: the sum, and what bounds the greatest part of it.
Limit limit_of(const Roofline& roofline, std::span<const TimedCommand> commands);

}  // namespace pumice::bench
