// A recurrence on random rows of several sequences, for tests and benchmarks: inputs, and what fp32
// may make of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shaders/common/state_case.hpp"
#include "shaders/op_case.hpp"
#include "shaders/recurrence/recurrence.hpp"

namespace pumice::ops {

struct RecurrenceCase {
  Recurrence::Shape shape;
  std::vector<StateCase::Sequence> sequences;
  uint32_t piece_rows = 0;  ///< Recurrence::Tuning's, whatever the device is tuned to
  float a_scale = 0;        ///< how strongly it decays; 0: as lets the rows matter to each other

  /// "heads=4/2 dims=16/32 d rows=5,1+ pieces=16"
  std::string name() const;
  /// Whether the device has the shared memory.
  bool supported(const vk::DevicePlan& device) const;
  /// Ready to run, with gaps between rows and every element expected.
  Result<PreparedOp> prepare(OpBed& bed) const;
  /// The same without gaps, with a few columns' elements expected, for timing.
  Result<PreparedOp> prepare_bench(OpBed& bed) const;
};

}  // namespace pumice::ops
