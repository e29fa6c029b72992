// What the device was measured to reach: bandwidth, arithmetic in registers, the cost of dispatches
// and submissions. docs/BENCHMARKING.md says how and why.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/timing.hpp"
#include "vk/pipeline.hpp"

namespace pumice::bench {

struct Peak {
  enum class Unit { kGigabytesPerSecond, kTeraflops, kMicroseconds };

  std::string name;  ///< "read bandwidth", "f32", "dispatch, dependent"
  Unit unit = Unit::kGigabytesPerSecond;
  vk::Cost cost;                   ///< of one sample; nothing for times
  std::vector<double> samples_ns;  ///< what `cost` took, or the time itself

  /// In `unit`: speeds of the fastest sample, since nothing but the device itself makes one faster;
  /// times of the median.
  double value() const;
};
std::string_view unit_name(Peak::Unit unit);  ///< "GB/s", "TFLOP/s", "us"

struct Peaks {
  uint64_t working_set_bytes = 0;  ///< what bandwidth was measured over
  std::vector<Peak> peaks;
  std::vector<std::string> absent;  ///< what could not be measured and why, a line each

  Roofline roofline() const;
};

/// Bytes to measure bandwidth over: four times the last-level cache where the processor tells (CPU
/// drivers), 1 GiB on GPUs, whose caches reach 256 MiB; but a quarter of the budget and one slab at
/// most.
uint64_t working_set_bytes(const vk::Device& device);

/// GB/s at which kernels read memory of that kind, by as large a range as working_set_bytes or
/// `most_bytes`. Errors: as measure_peaks.
Result<double> measure_reading(vk::PipelineLibrary& pipelines, vk::MemoryDomain domain,
                               uint64_t most_bytes, const TimingOptions& options);

/// Measure all that this build and device can. `progress` is told what comes next. Errors: device
/// loss, out of memory, kCancelled.
Result<Peaks> measure_peaks(vk::PipelineLibrary& pipelines, const TimingOptions& options,
                            const std::function<void(const std::string&)>& progress = {});

}  // namespace pumice::bench
