// How long work will take on a device, predicted from what it moves and computes and from how long
// earlier work took. Pure arithmetic; not thread-safe.
#pragma once

#include <cstdint>
#include <numbers>
#include <optional>
#include <span>

#include "vk/recorder.hpp"

namespace pumice {

/// Nanoseconds. A segment takes its own, those of its commands, and the slower of moving their
/// bytes and computing their flops.
struct PaceRates {
  static constexpr double kLeast = 1e-9, kMost = 1e12;  ///< that any of them is

  double per_segment = 0;
  double per_command = 0;
  double per_byte = 0;
  double per_flop = 0;

  bool operator==(const PaceRates&) const = default;
};

class Pace {
 public:
  using Segment = vk::RecordedWork::Segment;  ///< of which the commands do not matter here
  using Rates = PaceRates;

  /// Until something is known: of a small GPU, and of a CPU.
  static constexpr Rates kGpu = {5e3, 3e3, 1.0 / 100, 1.0 / 2000};
  static constexpr Rates kCpu = {50e3, 20e3, 1.0 / 5, 1.0 / 20};

  /// `learned`: the rates are what another one on such a device had learned.
  explicit Pace(const Rates& rates, bool learned = false)
      : rates_(rates), n_observed_(learned ? kEnough : 0) {}

  /// The rates as they are now, worth keeping for another; nothing until enough was observed.
  std::optional<Rates> learned() const {
    return n_observed_ < kEnough ? std::nullopt : std::optional(rates_);
  }

  double predict_ns(const Segment& segment) const;

  /// Segments that are predicted to take `ns`, or, where most of that would be what segments take
  /// of their own, those whose work is predicted to take half of it.
  vk::SegmentLimit limit(double ns) const;

  /// Segments took so long, together or each: `ns` has one element or one a segment. The rates that
  /// the prediction consists of move so that it comes a quarter of the way there, those most that
  /// make most of it (in logarithms: no rate becomes negative). What is off by more than two counts
  /// as off by two, and in a row of such, all to one side, each as off by the square of that of the
  /// one before: a hiccup teaches little, another clock is learned within a few segments. Segments
  /// without commands or time teach nothing.
  void observe(std::span<const Segment> segments, std::span<const double> ns);
  void observe(const Segment& segment, double ns) { observe({&segment, 1}, {&ns, 1}); }

 private:
  Rates parts_ns(const Segment& segment) const;
  void correct(const Rates& parts, double ns);

  static constexpr double kLeastTrust = std::numbers::ln2;
  static constexpr uint32_t kEnough = 8;  // observations, each of which counts a quarter

  Rates rates_;
  uint32_t n_observed_ = 0;     // up to kEnough
  double trust_ = kLeastTrust;  // how far off the next observation may be, as a logarithm
  bool was_longer_ = false;  // of the last that was further off, if trust_ is more than the least
};

}  // namespace pumice
