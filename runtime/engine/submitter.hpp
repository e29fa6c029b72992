// Submits the recorded work of steps in slices, each a submission of its own of bounded predicted
// time: a driver's watchdog times one submission, and a slice is where a driver may let another
// program in. How long a segment will take is predicted from what it must move and compute and from
// how long earlier work really took; a segment that alone takes longer is a slice by itself.
//
// It bounds submissions, not the queue: all slices of a step are queued at once, and the engine
// queues the next step's behind them, so who shares the queue waits for up to two whole steps.
// Uploads of weights, transfers of KV blocks and pipelines' first dispatches do not pass through
// here: each is one submission of whatever length (vk::run), waited for.
#pragma once

#include <chrono>
#include <memory>

#include "base/result.hpp"
#include "vk/recorder.hpp"

namespace pumice {

class Submitter {
 public:
  /// Work that was submitted and not yet waited for.
  struct Ticket {
    uint64_t value = 0;  ///< the device's timeline reaches it when the work is done
    std::chrono::steady_clock::time_point submitted;
    double nominal_ns = 0;
  };

  /// `slice`: the longest a single submission should take.
  explicit Submitter(std::shared_ptr<vk::Device> device,
                     std::chrono::milliseconds slice = std::chrono::milliseconds(100));

  /// Submit all segments in order, cut into slices, without waiting. Errors: kDeviceLost,
  /// kDoesNotFit; slices before the one that failed are then under way.
  Result<Ticket> submit(const vk::RecordedWork& work);

  /// Wait for submitted work, in the order of submission. Returns the seconds it took by itself
  /// (since it was submitted or since the work before it ended), NaN if it had ended before anyone
  /// looked. Errors: kDeviceLost.
  Result<double> wait(const Ticket& ticket);

 private:
  double predicted_ns(const vk::Cost& cost) const;

  std::shared_ptr<vk::Device> device_;
  double slice_ns_;
  double slowness_ = 1;  ///< measured over nominal time; learned
  std::chrono::steady_clock::time_point last_ended_;
};

}  // namespace pumice
