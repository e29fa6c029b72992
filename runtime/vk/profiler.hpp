// Adds up timed command buffers per kernel and prints them against what the device could do.
#pragma once

#include <map>
#include <string>

#include "base/result.hpp"
#include "vk/recorder.hpp"

namespace pumice::vk {

class Profiler {
 public:
  struct Row {
    uint64_t calls = 0;
    double time_ns = 0;
    Cost cost;

    double gigabytes_per_second() const { return static_cast<double>(cost.bytes) / time_ns; }
    double teraflops() const { return static_cast<double>(cost.flops) / time_ns * 1e-3; }
  };

  /// Add work recorded with RecorderOptions::timestamps, after it is done.
  Status add(const RecordedWork& work);

  /// By label.
  const std::map<std::string, Row>& rows() const { return rows_; }

  /// A table, most time first: calls, time, share, GB/s, GFLOP/s.
  std::string table() const;

 private:
  std::map<std::string, Row> rows_;
};

}  // namespace pumice::vk
