// How long work will take on a device, predicted from what it moves and computes and from how long
// earlier work took. Pure arithmetic; not thread-safe.
#pragma once

#include <span>

#include "vk/recorder.hpp"

namespace pumice {

class Pace {
 public:
  /// Until something is known: nanoseconds a byte and a flop.
  struct Rates {
    double ns_per_byte = 0;
    double ns_per_flop = 0;
  };
  static constexpr Rates kGpu = {1.0 / 100, 1.0 / 2000};  ///< a small one
  static constexpr Rates kCpu = {1.0 / 5, 1.0 / 20};

  explicit Pace(const Rates& rates) : rates_(rates) {}

  /// Nanoseconds: as long as the slower of moving its bytes and computing its flops.
  double predict_ns(const vk::Cost& cost) const;

  /// What is predicted to take `ns`.
  vk::SegmentLimit limit(double ns) const;

  /// Pieces of work of these costs took so long, together or each: `ns` has one element or one a
  /// piece. The rates that bounded them move half way there. Pieces without cost or time teach
  /// nothing.
  void observe(std::span<const vk::Cost> costs, std::span<const double> ns);
  void observe(const vk::Cost& cost, double ns) { observe({&cost, 1}, {&ns, 1}); }

 private:
  Rates rates_;
};

}  // namespace pumice
