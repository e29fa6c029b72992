// Timing GPU work: warmed up, repeated until a sample is long enough, by the device's own clock
// where it has one.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "bench/roofline.hpp"
#include "vk/device.hpp"
#include "vk/recorder.hpp"

namespace pumice::bench {

inline double ns_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
}

/// Records one run of what is timed.
using Run = std::function<void(vk::Recorder&)>;

struct TimingOptions {
  uint32_t repetitions = 5;         ///< samples
  double min_sample_ns = 5e6;       ///< a sample has runs enough to last so long
  double max_sample_ns = 100e6;     ///< unless one run is longer, no sample lasts longer
  std::function<bool()> stop = {};  ///< asked between submissions; true ends it with kCancelled
};

struct Timing {
  std::vector<double> samples_ns;      ///< of one run: a sample's time divided by its runs
  uint32_t runs_per_sample = 0;        ///< in one submission
  bool device_clock = false;           ///< timestamps; else the host's clock around submissions
  std::vector<TimedCommand> commands;  ///< of one run

  vk::Cost cost() const;  ///< of one run
};

/// Whether timestamps are used on this device.
bool has_device_clock(const vk::Device& device);

/// Time runs, which cycle through `rotation` (not empty; its entries do the same on different
/// memory). A sample is one submission of many runs, ordered by the barriers that their accesses
/// need, so what a dispatch costs besides its kernel is in the time, as it is in a model. Pipelines
/// must be compiled. Errors: device loss, out of memory, kCancelled.
Result<Timing> time_runs(const std::shared_ptr<vk::Device>& device, std::span<const Run> rotation,
                         const TimingOptions& options);

}  // namespace pumice::bench
