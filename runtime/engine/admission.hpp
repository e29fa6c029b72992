// Which of the next segments go to the device now, by predicted times alone. Pure arithmetic.
#pragma once

namespace pumice {

/// One call of Submitter::submit.
class Admission {
 public:
  /// `unfinished_ns`: predicted, of what the device has; nothing only if it has nothing.
  Admission(double unfinished_ns, bool has_work, double budget_ns, double slice_ns)
      : unfinished_ns_(unfinished_ns),
        budget_ns_(budget_ns),
        slice_ns_(slice_ns),
        has_work_(has_work) {}

  enum class Verdict {
    kRefused,  ///< with it the device would have more than the budget; so no later one is asked for
    kJoins,    ///< into the slice of the one before
    kBegins,   ///< a slice
  };
  /// Of the next segment. A device that has nothing gets one however long it is.
  Verdict ask(double predicted_ns) {
    if (has_work_ && unfinished_ns_ + predicted_ns > budget_ns_) return Verdict::kRefused;
    const bool begins = !is_in_slice_ || slice_predicted_ns_ + predicted_ns > slice_ns_;
    if (begins) slice_predicted_ns_ = 0;
    is_in_slice_ = true;
    has_work_ = true;
    slice_predicted_ns_ += predicted_ns;
    unfinished_ns_ += predicted_ns;
    return begins ? Verdict::kBegins : Verdict::kJoins;
  }

  double slice_predicted_ns() const { return slice_predicted_ns_; }

 private:
  double unfinished_ns_;
  double budget_ns_;
  double slice_ns_;
  bool has_work_;
  bool is_in_slice_ = false;
  double slice_predicted_ns_ = 0;
};

}  // namespace pumice
