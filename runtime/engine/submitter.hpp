// Submits recorded work segment by segment, in the order in which it was added: as much at a time
// as a caller allows, in slices of bounded predicted time. A driver's watchdog times one
// submission, and a slice is where a driver may let another program in. A segment that alone is
// predicted to take longer is a slice by itself. Predictions learn from what work took: by the
// device's clock where segments are timed, else by when its end was waited for.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "engine/engine_options.hpp"
#include "engine/pace.hpp"
#include "engine/waker.hpp"
#include "vk/recorder.hpp"

namespace pumice {

/// Submissions that the device has not finished, as far as is known, and their predicted time.
class Backlog {
 public:
  /// The device's timeline reaches `value` when it is done.
  void add(uint64_t value, double predicted_ns) { submissions_.push_back({value, predicted_ns}); }
  /// Forget what is done.
  void reach(uint64_t value) {
    while (!submissions_.empty() && submissions_.front().value <= value) submissions_.pop_front();
  }
  bool empty() const { return submissions_.empty(); }
  /// What the timeline reaches when the oldest is done; there is one.
  uint64_t next_value() const { return submissions_.front().value; }
  double predicted_ns() const {
    double sum = 0;
    for (const Submission& submission : submissions_) sum += submission.predicted_ns;
    return sum;
  }

 private:
  struct Submission {
    uint64_t value = 0;
    double predicted_ns = 0;
  };
  std::deque<Submission> submissions_;
};

/// The smallest budget of late: of the last kRemembered, and at most as many before them.
class RecentBudgets {
 public:
  static constexpr uint32_t kRemembered = 256;

  void add(double budget_s) {
    if (n_++ == kRemembered) {
      n_ = 1;
      before_s_ = std::exchange(now_s_, kNone);
    }
    now_s_ = std::min(now_s_, budget_s);
  }
  double smallest_s() const { return std::min(now_s_, before_s_); }

 private:
  static constexpr double kNone = std::numeric_limits<double>::infinity();
  double now_s_ = kNone;
  double before_s_ = kNone;
  uint32_t n_ = 0;  // that now_s_ is the smallest of
};

/// A submission while somebody had a budget, and how long it took by the device's clock.
struct SliceTime {
  double asked_ns = 0;  ///< the longest that a slice should take
  double predicted_ns = 0;
  double measured_ns = 0;
};

/// Not thread-safe.
class Submitter {
 public:
  using Ticket = uint64_t;
  static constexpr double kNoBudget = std::numeric_limits<double>::infinity();

  /// `slice_s`: the longest a single submission should take. `known`: what predictions begin with,
  /// if an earlier one learned it.
  explicit Submitter(std::shared_ptr<vk::Device> device, double slice_s = kLongestSlice_s,
                     const std::optional<PaceRates>& known = {});
  static constexpr double kLongestSlice_s = 0.1;

  /// Slices are as long as the smallest of RecentBudgets, but not shorter than this.
  static constexpr double kShortestSlice_s = 0.5e-3;

  /// Any budget is cut to what the mode allows.
  void set_mode(EngineMode mode) { mode_ = mode; }
  static constexpr double kPoliteSlice_s = 2e-3;  ///< of the modes other than kFast, at most

  /// How work is to be recorded: segments of about half the smallest slice, with times once
  /// somebody has a budget (without one nobody looks often enough to time them).
  void set_segments(vk::RecorderOptions& options) const;
  std::optional<PaceRates> learned_pace() const { return pace_.learned(); }
  vk::SegmentLimit segment_limit() const { return pace_.limit(slice_ns() / 2); }
  bool times_segments() const;
  /// The predicted time of work in such segments. Where it doubles or halves, they are to be cut
  /// anew.
  double in_segments(const vk::RecordedWork& work) const;

  /// Queue work behind all that was added before. It is held until it has ended. `with`: earlier
  /// work that it is one with: `ended` of this one tells what both took, and predictions learn
  /// from both as from one.
  enum class Lesson {
    kPace,
    kNone,  ///< for work whose memory is not the device's own: predictions do not learn from it
  };
  Ticket add(std::shared_ptr<const vk::RecordedWork> work, Lesson lesson = Lesson::kPace,
             Ticket with = kNoTicket);
  static constexpr Ticket kNoTicket = 0;

  /// Work that was just added and what comes behind it is not submitted before `release`: the host
  /// has something to write that it reads. Nobody waits for it until then.
  void hold(Ticket ticket) { find(ticket).is_held = true; }
  /// Where the device has run out of work meanwhile, what it took teaches nothing. Errors:
  /// kDeviceLost.
  Status release(Ticket ticket);

  /// Submit no more of work whose results nobody wants: it has ended when what was submitted of it,
  /// and all that was added before it, has, and teaches nothing. Whether anything of it is left
  /// out.
  bool drop_rest(Ticket ticket);

  /// Submit the next segments, without waiting, as long as all that the device has and has not
  /// finished is predicted to take no more than `budget_s`; at least one where it has nothing.
  /// While a host holds the queue nothing is submitted, unless `waits_for_queue`. Errors:
  /// kDeviceLost, kDoesNotFit; earlier slices are then under way, and `clear` comes next.
  Status submit(double budget_s, bool waits_for_queue = false);

  /// Submit all that is queued, waiting for a host's queue and, where the mode does not allow all
  /// at once, for the device between parts. Whatever is given to the device next, by anyone, comes
  /// behind it. Errors: those of `submit`, and of a device that hangs.
  Status submit_all();
  /// Nothing that was added is still held back.
  bool all_submitted() const;

  /// A work is over only after all that was added before it.
  ///
  /// The seconds that work took by itself (since its first submission or since the work before it
  /// ended), NaN if it had ended before anyone looked; nothing while it has not ended. Does not
  /// wait. Once told, it and what was added before it are forgotten. Errors: kDeviceLost.
  Result<std::optional<double>> ended(Ticket ticket);

  /// The same of work whose time nobody asks for, and without forgetting what was added before it;
  /// work that is forgotten has ended. Not of work that `clear` took.
  Result<bool> has_ended(Ticket ticket);

  /// Submit what a budget or a host's queue held back, and wait for the end of this work or, where
  /// the mode does not allow all of it at once, until the device has finished some. Errors: those
  /// of submit.
  Status wait(Ticket ticket);

  /// Wait, `most` at most, until the device has finished the oldest submission that was not seen to
  /// be finished, or somebody wakes `waker`, which takes kWakeInterval at most to be noticed. Where
  /// the device has nothing because a host holds its queue: until it is time to try again, which is
  /// after kFirstRetry and, while that is in vain, ever later up to kLastRetry. Else not at all.
  /// Errors: kDeviceLost, also of a device that hangs.
  Status wait_next(std::chrono::nanoseconds most, Waker& waker);
  static constexpr std::chrono::microseconds kWakeInterval{2000};
  static constexpr std::chrono::microseconds kFirstRetry{100};
  static constexpr std::chrono::microseconds kLastRetry{2000};

  /// The slices whose work has ended since the last call, or the latest of them, if all of that was
  /// timed: oldest first.
  std::vector<SliceTime> take_slice_times() { return std::exchange(slice_times_, {}); }
  static constexpr size_t kMostSliceTimes = 4096;

  /// Forget all work, whether it was submitted or not. The device is idle.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  /// Segments of a work that went to the device in one slice: up to `end`.
  struct Share {
    uint64_t value = 0;  // Slice::value
    size_t end = 0;
  };
  /// One that is to be told once its works have ended.
  struct Slice {
    uint64_t value = 0;  // of the device's timeline when it is done
    size_t n_works = 0;  // that have not ended
    SliceTime time = {};
  };
  struct Work {
    Ticket ticket = 0;
    std::shared_ptr<const vk::RecordedWork> work;
    Lesson lesson = Lesson::kPace;
    Ticket with = kNoTicket;
    bool is_held = false;
    size_t n_wanted = 0;     // segments
    size_t n_submitted = 0;  // of them
    uint64_t value = 0;      // of the device's timeline, when what was submitted of it is done
    Clock::time_point submitted = {};
    std::optional<Clock::time_point> ended = {};  // if that was seen
    std::vector<Share> shares = {};               // of slices that are to be told

    bool is_submitted() const { return n_submitted == n_wanted; }
  };

  /// Nothing while a host holds the queue and this does not wait for it.
  Result<std::optional<uint64_t>> submit_commands(std::span<const VkCommandBuffer> commands,
                                                  bool waits_for_queue);
  double slice_ns() const;
  double most_ns(double budget_s) const;
  Work& find(Ticket ticket);
  std::optional<uint64_t> end_of(Ticket ticket) const;
  double forget(Ticket ticket, uint64_t reached);
  double learn(std::span<const Work> parts, double seconds);
  void keep_times(const Work& work, std::span<const double> ns);

  std::shared_ptr<vk::Device> device_;
  double longest_slice_ns_;
  RecentBudgets budgets_;
  EngineMode mode_ = EngineMode::kFast;
  bool has_budget_ = false;  // somebody had one
  Pace pace_;
  Ticket next_ticket_ = 1;
  Ticket first_ticket_ = 1;  // since `clear`
  std::deque<Work> works_;   // not known to have ended, oldest first
  Backlog backlog_;
  std::deque<Slice> slices_;  // oldest first
  bool was_refused_ = false;  // by a host that holds its queue, when something was submitted last
  std::chrono::microseconds retry_ = kFirstRetry;
  std::vector<SliceTime> slice_times_;
  Clock::time_point last_ended_;
};

}  // namespace pumice
