#include "engine/pace.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "base/check.hpp"

namespace pumice {
namespace {

constexpr double kGain = 0.25;
constexpr double kMostTrust = 32;                             // a factor that nothing is off by
constexpr uint64_t kMostOfCommand = (uint64_t{1} << 40) - 1;  // in a limit, in bytes or flops

uint64_t amount(double value) {
  return value < 1e18 ? std::max<uint64_t>(1, static_cast<uint64_t>(value))
                      : vk::SegmentLimit::kNone;
}

double sum(const Pace::Rates& parts) {
  return parts.per_segment + parts.per_command + parts.per_byte + parts.per_flop;
}

}  // namespace

/// What each rate contributes to the prediction.
Pace::Rates Pace::parts_ns(const Segment& segment) const {
  const double bytes_ns = static_cast<double>(segment.cost.bytes) * rates_.per_byte;
  const double flops_ns = static_cast<double>(segment.cost.flops) * rates_.per_flop;
  return {.per_segment = rates_.per_segment,
          .per_command = static_cast<double>(segment.n_commands) * rates_.per_command,
          .per_byte = bytes_ns >= flops_ns ? bytes_ns : 0,
          .per_flop = bytes_ns >= flops_ns ? 0 : flops_ns};
}

double Pace::predict_ns(const Segment& segment) const { return sum(parts_ns(segment)); }

vk::SegmentLimit Pace::limit(double ns) const {
  const double work_ns = std::max(ns - rates_.per_segment - rates_.per_command, ns / 2);
  return {.bytes = amount(work_ns / rates_.per_byte),
          .flops = amount(work_ns / rates_.per_flop),
          .command_bytes = std::min(amount(rates_.per_command / rates_.per_byte), kMostOfCommand),
          .command_flops = std::min(amount(rates_.per_command / rates_.per_flop), kMostOfCommand)};
}

void Pace::observe(std::span<const Segment> segments, std::span<const double> ns) {
  PUMICE_CHECK(ns.size() == segments.size() || ns.size() == 1, "a time for all or for each");
  if (ns.size() == segments.size()) {
    for (size_t i = 0; i < ns.size(); ++i) {
      if (segments[i].n_commands > 0) correct(parts_ns(segments[i]), ns[i]);
    }
    return;
  }
  Rates all;
  for (const Segment& segment : segments) {
    if (segment.n_commands == 0) continue;
    const Rates parts = parts_ns(segment);
    all.per_segment += parts.per_segment;
    all.per_command += parts.per_command;
    all.per_byte += parts.per_byte;
    all.per_flop += parts.per_flop;
  }
  correct(all, ns[0]);
}

/// A step of the normalised least-mean-square filter, in logarithms: the prediction, whose parts
/// these are, moves by the gain, with the least change of rates that does it.
void Pace::correct(const Rates& parts, double ns) {
  const double predicted_ns = sum(parts);
  if (!(predicted_ns > 0) || !(ns > 0) || !std::isfinite(ns)) return;
  double off = std::log(ns / predicted_ns);
  const bool is_longer = off > 0;
  if (is_longer != was_longer_) trust_ = kLeastTrust;
  was_longer_ = is_longer;
  const bool is_far = std::abs(off) > kLeastTrust;
  off = std::clamp(off, -trust_, trust_);
  trust_ = is_far ? std::min(2 * trust_, kMostTrust) : kLeastTrust;

  double squares = 0;
  for (const double part : {parts.per_segment, parts.per_command, parts.per_byte, parts.per_flop}) {
    squares += (part / predicted_ns) * (part / predicted_ns);
  }
  const auto move = [&](double& rate, double part) {
    const double factor = std::exp(kGain * off * (part / predicted_ns) / squares);
    rate = std::clamp(rate * factor, Rates::kLeast, Rates::kMost);
  };
  move(rates_.per_segment, parts.per_segment);
  move(rates_.per_command, parts.per_command);
  move(rates_.per_byte, parts.per_byte);
  move(rates_.per_flop, parts.per_flop);
  n_observed_ = std::min(n_observed_ + 1, kEnough);
}

}  // namespace pumice
