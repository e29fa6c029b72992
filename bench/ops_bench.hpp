// `pumice bench --ops`: every op on the shapes of real models, checked, timed and held against what
// the device was measured to reach.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "bench/peaks.hpp"
#include "bench/timing.hpp"
#include "shaders/op_case.hpp"
#include "vk/pipeline.hpp"

namespace pumice::bench {

/// One op and shape. Without an error it was right and timed; with one there is no timing.
struct OpRow {
  std::string op;
  std::string name;
  Timing timing;
  Limit limit;
  std::optional<Error> error;

  double median_ns() const;
  double gigabytes_per_second() const;
  double teraflops() const;
  double percent_of_limit() const;  ///< 100: as fast as the measured limit; 0: nothing limits
  std::vector<std::string> labels() const;  ///< the kernels that ran, each once
};

struct OpsReport {
  ops::BenchScale scale;
  Peaks peaks;
  std::vector<OpRow> rows;
  size_t n_left_out = 0;       ///< rows that the time limit did not allow
  std::optional<Error> ended;  ///< why measuring stopped early: device loss, an interrupt
};

struct OpsOptions {
  TimingOptions timing;     ///< `stop` is also asked between the parts of a row
  std::string filter;       ///< only rows with this in "op name"; empty: all
  double time_limit_s = 0;  ///< no row is begun later than this; 0: no limit
  /// Told before each part: how much is done of how much, and what comes next.
  std::function<void(size_t done, size_t total, const std::string& next)> progress = {};
};

/// The time that measuring everything may take by default: a minute on CPU drivers, two on GPUs.
double default_time_limit_s(const vk::DevicePlan& plan);

/// Check one case against its reference and, if it is right, time it; nothing where `goes_on`, asked
/// when the op is planned, says no. Errors: kSelfTestFailed, kCancelled, those of the device.
Result<std::optional<Timing>> check_and_time(vk::PipelineLibrary& pipelines,
                                             const ops::OpCase& op_case,
                                             const TimingOptions& options,
                                             const std::function<bool()>& goes_on = {});

/// The same, held against the device's limits. What goes wrong is in the row.
OpRow bench_op(vk::PipelineLibrary& pipelines, const ops::OpCase& op_case, const Roofline& roofline,
               const TimingOptions& options);

/// Measure the peaks, then the cases that match, matrix products last: there are many. Where none
/// matches nothing is measured. Never fails: errors are in the report.
OpsReport bench_ops(vk::PipelineLibrary& pipelines, std::span<const ops::OpCase> cases,
                    const OpsOptions& options);

/// The report's worst news: device loss, a wrong result (kSelfTestFailed), another error of a row.
/// Rows that do not fit into memory are no failure.
Status verdict(const OpsReport& report);

}  // namespace pumice::bench
