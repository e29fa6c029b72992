// Submits recorded work in slices of bounded time, so that no driver watchdog fires and a host
// application is never shut out of its GPU for long. How long a segment will take is predicted from
// what it must move and compute and from how long earlier work really took.
#pragma once

#include <chrono>
#include <memory>

#include "base/result.hpp"
#include "vk/recorder.hpp"

namespace pumice {

class Submitter {
 public:
  /// `slice`: the longest a single submission should take.
  explicit Submitter(std::shared_ptr<vk::Device> device,
                     std::chrono::milliseconds slice = std::chrono::milliseconds(100));

  /// Submit all segments in order, cut into slices, and wait for the last. Errors: kDeviceLost.
  Status run(const vk::RecordedWork& work);

  /// Slices of the last `run`.
  size_t last_slices() const { return last_slices_; }

 private:
  double predicted_ns(const vk::Cost& cost) const;

  std::shared_ptr<vk::Device> device_;
  double slice_ns_;
  double slowness_ = 1;  ///< measured over nominal time; learned
  size_t last_slices_ = 0;
};

}  // namespace pumice
