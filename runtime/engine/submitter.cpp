#include "engine/submitter.hpp"

#include <cmath>
#include <numeric>

#include "engine/admission.hpp"

namespace pumice {

namespace {

Pace pace_of(const vk::Device& device, const std::optional<PaceRates>& known) {
  if (known) return Pace(*known, true);
  return Pace(device.plan().device_class == vk::DeviceClass::kCpu ? Pace::kCpu : Pace::kGpu);
}

}  // namespace

Submitter::Submitter(std::shared_ptr<vk::Device> device, double slice_s,
                     const std::optional<PaceRates>& known)
    : device_(std::move(device)),
      longest_slice_ns_(slice_s * 1e9),
      pace_(pace_of(*device_, known)) {}

double Submitter::slice_ns() const {
  const double of_budgets_ns = 1e9 * std::max(budgets_.smallest_s(), kShortestSlice_s);
  const double ns = std::min(longest_slice_ns_, of_budgets_ns);
  return mode_ == EngineMode::kFast ? ns : std::min(ns, 1e9 * kPoliteSlice_s);
}

void Submitter::set_segments(vk::RecorderOptions& options) const {
  options.segment = segment_limit();
  options.time_segments = times_segments() && !options.timestamps && !options.time_span;
}

bool Submitter::times_segments() const {
  return has_budget_ && device_->plan().timestamp_valid_bits > 0;
}

double Submitter::in_segments(const vk::RecordedWork& work) const {
  double predicted_ns = 0;
  for (const vk::RecordedWork::Segment& segment : work.segments()) {
    predicted_ns += pace_.predict_ns(segment);
  }
  return predicted_ns / (slice_ns() / 2);
}

Submitter::Ticket Submitter::add(std::shared_ptr<const vk::RecordedWork> work, Lesson lesson,
                                 Ticket with) {
  const size_t n_segments = work->segments().size();
  works_.push_back({.ticket = next_ticket_,
                    .work = std::move(work),
                    .lesson = lesson,
                    .with = with,
                    .n_wanted = n_segments});
  return next_ticket_++;
}

Status Submitter::release(Ticket ticket) {
  Work& work = find(ticket);
  work.is_held = false;
  PUMICE_TRY(const uint64_t reached, device_->completed());
  backlog_.reach(reached);
  if (backlog_.empty() && ticket != works_.front().ticket) work.lesson = Lesson::kNone;
  return {};
}

bool Submitter::drop_rest(Ticket ticket) {
  Work& work = find(ticket);
  work.n_wanted = work.n_submitted;
  return work.n_wanted < work.work->segments().size();
}

double Submitter::most_ns(double budget_s) const {
  switch (mode_) {
    case EngineMode::kFast:
      return budget_s * 1e9;
    case EngineMode::kBesideGraphics:
      return std::min(budget_s * 1e9, 2 * slice_ns());
    case EngineMode::kBackground:
      return std::min(budget_s * 1e9, slice_ns());
  }
  return 0;
}

Status Submitter::submit(double budget_s, bool waits_for_queue) {
  budgets_.add(budget_s);
  has_budget_ = has_budget_ || budget_s < kNoBudget;
  if (!backlog_.empty()) {
    PUMICE_TRY(const uint64_t reached, device_->completed());
    backlog_.reach(reached);
  }
  if (mode_ == EngineMode::kBackground && !backlog_.empty()) return {};
  Admission admission(backlog_.predicted_ns(), !backlog_.empty(), most_ns(budget_s), slice_ns());
  struct WorkPart {
    Work* work = nullptr;
    size_t end = 0;  // of its segments
  };
  std::vector<VkCommandBuffer> slice;
  std::vector<WorkPart> in_slice;
  double slice_predicted_ns = 0;
  // False: a host holds the queue, and the slice waits.
  const auto submit_slice = [&]() -> Result<bool> {
    if (slice.empty()) return true;
    const Clock::time_point now = Clock::now();
    PUMICE_TRY(const std::optional<uint64_t> value, submit_commands(slice, waits_for_queue));
    was_refused_ = !value;
    if (!value) return false;
    retry_ = kFirstRetry;
    for (const WorkPart& part : in_slice) {
      if (part.work->n_submitted == 0) part.work->submitted = now;
      part.work->n_submitted = part.end;
      part.work->value = *value;
      if (times_segments()) part.work->shares.push_back({*value, part.end});
    }
    if (times_segments()) {
      slices_.push_back({.value = *value,
                         .n_works = in_slice.size(),
                         .time = {.asked_ns = slice_ns(), .predicted_ns = slice_predicted_ns}});
    }
    backlog_.add(*value, slice_predicted_ns);
    slice.clear();
    in_slice.clear();
    slice_predicted_ns = 0;
    return true;
  };
  for (Work& work : works_) {
    if (work.is_held && !work.is_submitted()) break;
    const auto segments = work.work->segments();
    for (size_t next = work.n_submitted; next < work.n_wanted; ++next) {
      const vk::RecordedWork::Segment& segment = segments[next];
      const Admission::Verdict verdict = admission.ask(pace_.predict_ns(segment));
      if (verdict != Admission::Verdict::kJoins) {
        PUMICE_TRY(const bool submitted, submit_slice());
        if (!submitted) return {};
      }
      if (verdict == Admission::Verdict::kRefused) return {};
      if (in_slice.empty() || in_slice.back().work != &work) in_slice.push_back({&work});
      in_slice.back().end = next + 1;
      slice.push_back(segment.commands);
      slice_predicted_ns = admission.slice_predicted_ns();
    }
  }
  PUMICE_TRY_STATUS(submit_slice());
  return {};
}

Result<std::optional<uint64_t>> Submitter::submit_commands(
    std::span<const VkCommandBuffer> commands, bool waits_for_queue) {
  if (!waits_for_queue) return device_->try_submit(commands);
  PUMICE_TRY(const uint64_t value, device_->submit(commands));
  return std::optional(value);
}

bool Submitter::all_submitted() const { return std::ranges::all_of(works_, &Work::is_submitted); }

Status Submitter::submit_all() {
  while (true) {
    PUMICE_TRY_STATUS(submit(kNoBudget, true));
    if (all_submitted()) return {};
    PUMICE_TRY_STATUS(device_->wait(backlog_.next_value()));
  }
}

Submitter::Work& Submitter::find(Ticket ticket) {
  const auto it = std::ranges::find(works_, ticket, &Work::ticket);
  PUMICE_CHECK(it != works_.end(), "work that was never added, or is forgotten");
  return *it;
}

/// The device's timeline when this work and all before it are over; nothing while some of that is
/// held back.
std::optional<uint64_t> Submitter::end_of(Ticket ticket) const {
  uint64_t value = 0;
  for (const Work& work : works_) {
    if (work.ticket > ticket) break;
    if (!work.is_submitted()) return std::nullopt;
    value = std::max(value, work.value);
  }
  return value;
}

/// This work and what came before it, all of which is over; the seconds it took.
double Submitter::forget(Ticket ticket, uint64_t reached) {
  const Ticket with = find(ticket).with;
  std::vector<Work> parts;  // of what it is one with
  for (; !works_.empty() && works_.front().ticket <= ticket; works_.pop_front()) {
    Work& front = works_.front();
    PUMICE_DEBUG_CHECK(front.is_submitted() && front.value <= reached,
                       "work is forgotten before it has run");
    if (front.ticket == ticket || front.ticket == with) {
      parts.push_back(std::move(front));
    } else {
      keep_times(front, {});
    }
  }
  const std::optional<Clock::time_point> seen = parts.back().ended;
  const Clock::time_point ended = seen.value_or(Clock::now());
  const std::chrono::duration<double> elapsed =
      ended - std::max(parts.front().submitted, last_ended_);
  last_ended_ = ended;
  return learn(parts, seen ? elapsed.count() : std::numeric_limits<double>::quiet_NaN());
}

/// The seconds that a work took, if not by this clock then by the device's.
double Submitter::learn(std::span<const Work> parts, double seconds) {
  const bool teaches = std::ranges::all_of(parts, [](const Work& part) {
    return part.lesson != Lesson::kNone && part.n_wanted == part.work->segments().size();
  });
  std::vector<Pace::Segment> segments;
  std::vector<double> ns;
  for (const Work& part : parts) {
    std::vector<double> times;
    if (teaches && part.work->times_segments()) {
      Result<std::vector<double>> measured = part.work->segment_times_ns();
      if (measured.ok()) times = std::move(measured).value();
    }
    keep_times(part, times);
    ns.insert(ns.end(), times.begin(), times.end());
    segments.insert(segments.end(), part.work->segments().begin(), part.work->segments().end());
  }
  if (!teaches) return std::numeric_limits<double>::quiet_NaN();
  const bool timed = ns.size() == segments.size();
  if (!timed) ns = {seconds * 1e9};
  pace_.observe(segments, ns);
  return std::isnan(seconds) ? 1e-9 * std::accumulate(ns.begin(), ns.end(), 0.0) : seconds;
}

/// Of a work that has ended: what its segments took, or nothing if that is not known.
void Submitter::keep_times(const Work& work, std::span<const double> ns) {
  size_t next = 0;
  for (const Share& share : work.shares) {
    const auto slice = std::ranges::find(slices_, share.value, &Slice::value);
    for (; next < share.end; ++next) {
      slice->time.measured_ns +=
          next < ns.size() ? ns[next] : std::numeric_limits<double>::quiet_NaN();
    }
    if (--slice->n_works > 0) continue;
    if (!std::isnan(slice->time.measured_ns)) {
      if (slice_times_.size() == kMostSliceTimes) slice_times_.erase(slice_times_.begin());
      slice_times_.push_back(slice->time);
    }
    slices_.erase(slice);
  }
}

Result<std::optional<double>> Submitter::ended(Ticket ticket) {
  (void)find(ticket);
  const std::optional<uint64_t> end = end_of(ticket);
  if (!end) return std::optional<double>();
  PUMICE_TRY(const uint64_t reached, device_->completed());
  if (reached < *end) return std::optional<double>();
  return std::optional(forget(ticket, reached));
}

Result<bool> Submitter::has_ended(Ticket ticket) {
  PUMICE_DEBUG_CHECK(ticket >= first_ticket_, "work that was given up");
  const auto work = std::ranges::find(works_, ticket, &Work::ticket);
  if (work == works_.end()) return true;
  const std::optional<uint64_t> end = end_of(ticket);
  if (!end) return false;
  PUMICE_TRY(const uint64_t reached, device_->completed());
  if (reached < *end) return false;
  if (work == works_.begin()) (void)forget(ticket, reached);
  return true;
}

Status Submitter::wait(Ticket ticket) {
  Work& work = find(ticket);
  std::optional<uint64_t> end = end_of(ticket);
  if (!end) {
    PUMICE_TRY_STATUS(submit(kNoBudget, true));
    end = end_of(ticket);
    if (!end) return device_->wait(backlog_.next_value());
  }
  PUMICE_TRY(const uint64_t reached, device_->completed());
  PUMICE_TRY_STATUS(device_->wait(*end));
  if (reached < *end) work.ended = Clock::now();
  return {};
}

Status Submitter::wait_next(std::chrono::nanoseconds most, Waker& waker) {
  if (backlog_.empty()) {
    if (was_refused_ && !all_submitted() &&
        !waker.sleep(std::min<std::chrono::nanoseconds>(most, retry_))) {
      retry_ = std::min(2 * retry_, kLastRetry);
    }
    return {};
  }
  const uint64_t value = backlog_.next_value();
  PUMICE_TRY(const uint64_t before, device_->completed());
  if (before >= value) return {};
  const Clock::time_point start = Clock::now();
  // Drivers wait for a device and for nothing else, or do so in a busy loop.
  while (!waker.sleep({})) {
    const std::chrono::nanoseconds left = most - (Clock::now() - start);
    if (left.count() <= 0) return {};
    PUMICE_TRY(const bool reached,
               device_->wait_for(value, std::min<std::chrono::nanoseconds>(left, kWakeInterval)));
    if (!reached) continue;
    for (Work& work : works_) {
      if (work.is_submitted() && work.value == value) work.ended = Clock::now();
    }
    return {};
  }
  return {};
}

void Submitter::clear() {
  const auto is_over = [&](const Work& work) {
    const Result<uint64_t> reached = device_->completed();
    return !reached.ok() || work.value <= *reached;
  };
  PUMICE_DEBUG_CHECK(std::ranges::all_of(works_, is_over), "work is forgotten while it runs");
  first_ticket_ = next_ticket_;
  works_.clear();
  backlog_ = {};
  slices_.clear();
}

}  // namespace pumice
