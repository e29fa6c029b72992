// Host: the polling thread.
#include <algorithm>
#include <cmath>
#include <exception>
#include <new>
#include <utility>

#include "host/host.hpp"

namespace pumice::host {
namespace {

constexpr std::chrono::microseconds kLostInterval = std::chrono::milliseconds(20);
/// A request with a time limit beyond this has none.
constexpr double kLongestTimeout_s = 1e9;

double seconds_between(std::chrono::steady_clock::time_point from,
                       std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

void tell(std::vector<AnswerEvent> more, Event& event) {
  for (AnswerEvent& one : more) append_event(std::move(one), event.answer);
}

}  // namespace

Status Host::take_engine(std::unique_lock<std::mutex>& polling) {
  polling = std::unique_lock(poll_mutex_, std::try_to_lock);
  if (polling) return {};
  return make_error(ErrorCode::kBusy,
                    "another thread is polling this engine, waiting for it or taking its events");
}

/// With the engine to itself. What `body` throws is the end of the engine.
Status Host::with_engine(const std::function<Status()>& body) {
  std::unique_lock<std::mutex> polling;
  PUMICE_TRY_STATUS(take_engine(polling));
  {
    const std::lock_guard lock(mutex_);
    PUMICE_TRY_STATUS(check_alive());
  }
  Error broken;
  try {
    return body();
  } catch (const std::bad_alloc&) {
    broken = {ErrorCode::kOutOfMemory, "the host is out of memory"};
  } catch (const std::exception& exception) {
    broken = {ErrorCode::kInternal, exception.what()};
  }
  give_up(broken);
  return broken;
}

Result<Engine::Readiness> Host::prewarm(double seconds) {
  Engine::Readiness readiness;
  PUMICE_TRY_STATUS(with_engine([&]() -> Status {
    PUMICE_TRY(readiness, engine_->prewarm(seconds));
    return {};
  }));
  return readiness;
}

Status Host::poll(double budget_s) {
  return with_engine([&]() -> Status {
    saved_ = {};
    empty_inbox();
    Status status = advance(budget_s);
    end_overdue();
    update_stats();
    return status;
  });
}

Status Host::advance(double budget_s) {
  if (!is_lost_ && has_lost_device()) {
    note_loss({ErrorCode::kDeviceLost, "the device was lost"});
  }
  if (is_elsewhere()) PUMICE_TRY_STATUS(recover());
  Result<std::vector<StepEvent>> events = engine_->poll(budget_s);
  if (!events.ok() && events.error().code == ErrorCode::kDeviceLost) {
    note_loss(events.error());
    PUMICE_TRY_STATUS(recover());
    events = std::vector<StepEvent>();
  }
  if (events.ok()) {
    for (StepEvent& event : *events) add_event(event);
  }
  if (budget_event_due_ && engine_->memory().met) {
    events_.push_back({.kind = Event::Kind::kBudgetMet});
    budget_event_due_ = false;
  }
  return events.ok() ? Status() : Status(events.error());
}

/// The scheduler ends what is late when it plans a step, which it does not while there is no
/// device, kernels are compiled or steps fail. Behind the step, as what has landed counts.
void Host::end_overdue() {
  const Clock::time_point now = Clock::now();
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    stop(deadlines_.begin()->second, EndReason::kDeadline);
  }
  while (!starts_.empty() && starts_.begin()->first <= now) {
    const RequestId id = starts_.begin()->second;
    starts_.erase(starts_.begin());
    if (waits(id)) stop(id, EndReason::kDeadline);
  }
}

/// Nothing of it was in a step yet.
bool Host::waits(RequestId id) const {
  const std::lock_guard lock(mutex_);
  const auto request = requests_.find(id);
  if (request == requests_.end() || request->second.ended) return false;
  const std::optional<pumice::RequestId> running = request->second.running;
  return !running || std::isnan(engine_->scheduler().request(*running).times.first_scheduled);
}

Status Host::wait(std::chrono::microseconds most) {
  return with_engine([&]() -> Status {
    if (!events_.empty()) return {};
    {
      const std::lock_guard lock(mutex_);
      if (!inbox_.empty() || !cancelled_.empty()) return {};
    }
    if (!reading_.empty()) most = std::min(most, kLostInterval);
    // Nothing wakes a thread that waits for another device.
    if (is_elsewhere()) most = std::min(most, kLostInterval);
    // What an error is, `poll` finds too.
    (void)engine_->wait(std::chrono::duration<double>(most).count());
    return {};
  });
}

Status Host::set_memory_budget(uint64_t bytes) {
  return with_engine([&]() -> Status {
    PUMICE_TRY_STATUS(engine_->set_memory_budget(bytes));
    budget_event_due_ = bytes != UINT64_MAX;
    return {};
  });
}

void Host::keep_for_next_run() {
  if (broken_ || engine_->device() == nullptr) return;
  model_->opened().keep_for_next_run(*engine_);
}

// ---- requests in

void Host::empty_inbox() {
  std::vector<Submission> inbox;
  std::vector<RequestId> cancelled;
  {
    const std::lock_guard lock(mutex_);
    if (new_mode_) engine_->set_mode(*new_mode_);
    new_mode_.reset();
    inbox.swap(inbox_);
    cancelled.swap(cancelled_);
  }
  for (Submission& submission : inbox) start(std::move(submission));
  for (const RequestId id : cancelled) stop(id, EndReason::kCancelled);
  begin_read();
}

void Host::start(Submission submission) {
  const auto limit = [&](double s, std::optional<Clock::time_point>& time, auto& times) {
    if (!(s <= kLongestTimeout_s)) return;
    time = Clock::now() +
           std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(s));
    times.emplace(*time, submission.id);
  };
  {
    const std::lock_guard lock(mutex_);
    OpenRequest& request = requests_.at(submission.id);
    limit(submission.request.timeout_s, request.deadline, deadlines_);
    limit(submission.queue_timeout_s, request.start_by, starts_);
  }
  if (!waits_for_stored(submission)) give_to_engine(std::move(submission));
}

void Host::give_to_engine(Submission submission) {
  if (ends_at_threshold(submission)) return;
  {
    const std::lock_guard lock(mutex_);
    const std::optional<Clock::time_point> deadline = requests_.at(submission.id).deadline;
    if (deadline) {
      const std::chrono::duration<double> left = *deadline - Clock::now();
      submission.request.timeout_s = std::max(left.count(), 0.0);
    }
    const auto first = requests_.find(submission.choice_of);
    if (first != requests_.end()) submission.request.choice_of = first->second.running;
    if (submission.scores) {
      const ConversationId conversation = requests_.at(submission.id).conversation;
      submission.request.on_score = [this, id = submission.id, conversation](
                                        uint32_t position, TokenId token,
                                        const TokenLogProbs& log_probs) {
        events_.push_back({.kind = Event::Kind::kScore,
                           .request = id,
                           .conversation = conversation,
                           .token = token,
                           .log_probs = log_probs,
                           .computed_tokens = position});
      };
    }
  }
  const Result<pumice::RequestId> running = engine_->submit(std::move(submission.request));
  if (!running.ok()) {
    finish_with_error(submission.id, running.error());
    return;
  }
  running_.emplace(*running, submission.id);
  const std::lock_guard lock(mutex_);
  OpenRequest& request = requests_.at(submission.id);
  request.running = *running;
}

/// Nothing for one that has ended meanwhile, or was cancelled twice. `failure`: of kError.
void Host::stop(RequestId id, EndReason reason, Status failure) {
  const std::lock_guard lock(mutex_);
  const auto it = requests_.find(id);
  if (it == requests_.end() || it->second.ended) return;
  OpenRequest& request = it->second;
  RequestReport report;
  if (request.running) {
    running_.erase(*request.running);
    report = engine_->cancel(*request.running).value_or(RequestReport());
  }
  report.end_reason = reason;
  report.failure = std::move(failure);
  Event event{.text = std::move(report.held_text)};
  finish(id, request, std::move(report), event);
  events_.push_back(std::move(event));
}

// ---- events out

Result<Event*> Host::next_event() {
  std::unique_lock<std::mutex> polling;
  PUMICE_TRY_STATUS(take_engine(polling));
  if (events_.empty()) return nullptr;
  taken_ = std::move(events_.front());
  events_.pop_front();
  if (taken_.kind == Event::Kind::kFinished) {
    const std::lock_guard lock(mutex_);
    requests_.erase(taken_.request);
  }
  return &taken_;
}

void Host::add_event(StepEvent& step) {
  const RequestId id = running_.at(step.request);
  const std::lock_guard lock(mutex_);
  OpenRequest& request = requests_.at(id);
  Event event{.kind = step.token ? Event::Kind::kToken : Event::Kind::kProgress,
              .request = id,
              .conversation = request.conversation,
              .token = step.token,
              .log_probs = std::move(step.log_probs),
              .computed_tokens = step.computed_tokens,
              .text = std::move(step.text)};
  if (step.token) {
    count_token(request);
    const bool ends_text = step.finished && step.report->end_reason == EndReason::kStop;
    if (!ends_text) {
      request.tokens.push_back(*step.token);
      ++request.n_streamed;
      ++request.last.n_tokens;
      ++request.last.next_output_index;
    }
    if (request.reply && !ends_text) event.answer = request.reply->add(step.token, 0);
  }
  if (step.finished) {
    running_.erase(step.request);
    finish(id, request, *std::move(step.report), event);
  } else {
    request.given_bytes += event.text.size();
    if (request.said) request.answer += event.text;
    if (request.reply) tell(request.reply->add({}, event.text.size()), event);
  }
  events_.push_back(std::move(event));
}

/// Makes `event` the last one of a request. With mutex_ held, as `settle`.
void Host::finish(RequestId id, OpenRequest& request, RequestReport report, Event& event) {
  if (request.deadline) deadlines_.erase({*request.deadline, id});
  if (request.start_by) starts_.erase({*request.start_by, id});
  const Clock::time_point now = Clock::now();
  event.kind = Event::Kind::kFinished;
  event.request = id;
  event.conversation = request.conversation;
  count_end(request, report, now);
  const bool failed = report.end_reason == EndReason::kError;
  if (failed) {
    event.status = !report.failure.ok() ? report.failure
                                        : make_error(ErrorCode::kInternal,
                                                     "the engine could not continue this request");
  }
  event.ending = {.report = std::move(report),
                  .n_forgotten = request.n_forgotten,
                  .total = now - request.submitted};
  if (request.first_token) event.ending->first_token = *request.first_token - request.submitted;
  request.answer += event.text;
  if (request.reply) {
    const bool is_cut = event.ending->report.end_reason == EndReason::kStopString;
    tell(request.reply->finish(event.text.size(), is_cut), event);
  }
  settle(request, !failed);
}

void Host::finish_with_error(RequestId id, const Error& error) {
  Event event;
  const std::lock_guard lock(mutex_);
  finish(id, requests_.at(id), {.end_reason = EndReason::kError, .failure = error}, event);
  events_.push_back(std::move(event));
}

/// The request has ended: its conversation holds what was said, or with !keep what it held before.
void Host::settle(OpenRequest& request, bool keep) {
  request.ended = true;
  const auto it = conversations_.find(request.conversation);
  if (it == conversations_.end()) return;
  OpenConversation& conversation = it->second;
  conversation.busy = false;
  conversation.request = RequestId::kNone;
  if (keep) keep_what_was_said(std::move(request), conversation);
}

void Host::keep_what_was_said(OpenRequest request, OpenConversation& conversation) {
  conversation.tokens = std::move(request.tokens);
  conversation.last = request.last;
  if (request.shifted) {
    conversation.n_lost_turns += static_cast<uint32_t>(conversation.turns.size());
    conversation.turns.clear();
  }
  if (request.turn) conversation.turns.push_back(*request.turn);
  if (!conversation.turns.empty()) conversation.turns.back().last = request.last;
  if (!request.said) return;
  if (request.reply) {
    request.said->add(request.reply->message());
  } else {
    request.said->answer(std::move(request.answer));
  }
  conversation.said = std::move(*request.said);
  if (request.n_forgotten != 0) conversation.n_forgotten = request.n_forgotten;
}

/// After what must not happen, nothing is known of the engine: every request ends here.
void Host::give_up(const Error& error) {
  reading_.clear();
  std::vector<RequestId> open;
  {
    const std::lock_guard lock(mutex_);
    broken_ = error;
    for (const auto& [id, request] : requests_) {
      if (!request.ended) open.push_back(id);
    }
  }
  for (const RequestId id : open) finish_with_error(id, error);
}

void Host::add_latency(LatencyKind kind, double seconds) {
  latencies_[static_cast<size_t>(kind)].add(seconds);
}

void Host::count_token(OpenRequest& request) {
  const Clock::time_point now = Clock::now();
  if (request.first_token) {
    add_latency(LatencyKind::kTokenInterval, seconds_between(request.last_token, now));
  } else {
    request.first_token = now;
    add_latency(LatencyKind::kFirstToken, seconds_between(request.submitted, now));
  }
  request.last_token = now;
}

void Host::count_end(const OpenRequest& request, const RequestReport& report,
                     Clock::time_point now) {
  add_latency(LatencyKind::kTotal, seconds_between(request.submitted, now));
  const double waited = report.times.first_scheduled - report.times.arrived;
  if (!std::isnan(waited)) add_latency(LatencyKind::kQueue, waited);
}

void Host::update_stats() {
  const Scheduler& scheduler = engine_->scheduler();
  const Telemetry& telemetry = scheduler.telemetry();
  const KvCache& cache = scheduler.cache();
  const std::lock_guard lock(mutex_);
  stats_.steps = telemetry.steps;
  stats_.failed_steps = telemetry.failed_steps;
  stats_.prompt_tokens = telemetry.prompt_tokens;
  stats_.cached_tokens = telemetry.cached_tokens;
  stats_.generated_tokens = telemetry.generated_tokens;
  stats_.preemptions = telemetry.preemptions;
  stats_.queried_tokens = cache.stats().queried_tokens;
  stats_.hit_tokens = cache.stats().cached_tokens;
  stats_.running_requests = static_cast<uint32_t>(scheduler.n_running());
  stats_.waiting_requests = static_cast<uint32_t>(scheduler.n_waiting() + reading_.size());
  stats_.adapters = engine_->adapter_use();
  const double n_pages = std::max(cache.n_pages(), 1u);
  stats_.kv_usage = 1 - cache.n_free_pages() / n_pages;
  stats_.kv_blocks = cache.n_pages();
  stats_.block_tokens = cache.options().block_tokens;
  stats_.drafted_tokens = telemetry.drafted_tokens;
  stats_.accepted_tokens = telemetry.accepted_tokens;
  stats_.kernels_compiled_after_prewarm = engine_->pipelines_compiled_after_prewarm();
  stats_.allocations_after_prewarm = engine_->allocations_after_prewarm();
  stats_.memory = engine_->memory();
}

}  // namespace pumice::host
