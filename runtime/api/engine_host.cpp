#include "api/engine_host.hpp"

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "host/conversation_note.hpp"
#include "text/text_stream.hpp"

namespace pumice::api {
namespace {

/// Numbers are below 2^53, for scripts whose only number is a double: of an engine's own as many as
/// are never used up, and this, by which those of another engine most likely differ: of where the
/// engine lies and when it was made.
constexpr int kTagBits = 16;
constexpr int kCountBits = 36;
uint64_t tag_of(const void* engine) {
  const auto place = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(engine));
  const auto time =
      static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  return ((place ^ (time << 17)) * 0x9E3779B97F4A7C15u) >> (64 - kTagBits);
}

constexpr std::chrono::microseconds kLostInterval = std::chrono::milliseconds(20);
/// A request's time limit beyond this is none.
constexpr double kLongestTimeout_s = 1e9;

ApiStatus not_found(std::string_view what, uint64_t id) {
  return {PUMICE_NOT_FOUND,
          fmt::format("no {} {} in this engine: it has ended, or is another engine's", what, id)};
}

pumice_end_reason reason_of(EndReason reason) {
  switch (reason) {
    case EndReason::kNone:
      return PUMICE_END_NONE;
    case EndReason::kLength:
      return PUMICE_END_LENGTH;
    case EndReason::kStop:
      return PUMICE_END_STOP;
    case EndReason::kStopString:
      return PUMICE_END_STOP_TEXT;
    case EndReason::kWindow:
      return PUMICE_END_WINDOW;
    case EndReason::kCancelled:
      return PUMICE_END_CANCELLED;
    case EndReason::kDeadline:
      return PUMICE_END_TIMEOUT;
    case EndReason::kError:
      break;
  }
  return PUMICE_END_ERROR;
}

uint64_t microseconds_of(std::chrono::steady_clock::duration time) {
  return static_cast<uint64_t>(
      std::max<int64_t>(std::chrono::duration_cast<std::chrono::microseconds>(time).count(), 1));
}

}  // namespace

class EngineHost::BusyMark {
 public:
  BusyMark(EngineHost& host, pumice_session session) : host_(host), session_(session) {}
  ~BusyMark() {
    if (session_ == 0) return;
    const std::lock_guard lock(host_.mutex_);
    const auto it = host_.sessions_.find(session_);
    if (it != host_.sessions_.end()) it->second.busy = false;
  }
  BusyMark(const BusyMark&) = delete;
  BusyMark& operator=(const BusyMark&) = delete;
  void keep() { session_ = 0; }

 private:
  EngineHost& host_;
  pumice_session session_;
};

EngineHost::EngineHost(const pumice_model& model, std::unique_ptr<Engine> engine)
    : model_(model),
      tag_(tag_of(this)),
      window_(engine->options().context_tokens),
      overflow_(engine->options().overflow),
      keep_tokens_(engine->options().keep_tokens),
      engine_(std::move(engine)) {
  see_device();
  update_stats();
}

EngineHost::~EngineHost() = default;

void EngineHost::keep_for_next_run() {
  if (broken_ != PUMICE_OK || model_.owner->options().cache_directory.empty()) return;
  if (engine_->device() != nullptr) model_.recovery->opened().keep_for_next_run(*engine_);
}

/// Never 0, and never the same again.
uint64_t EngineHost::next_id(IdKind kind) {
  return tag_ << (kCountBits + 1) | ++n_ids_ << 1 | static_cast<uint64_t>(kind);
}

ApiStatus EngineHost::check_alive() const {
  if (broken_ == PUMICE_OK) return {};
  return {broken_, "the engine can only be closed: " + why_broken_};
}

// ---- sessions

ApiStatus EngineHost::open_session(SessionDefaults defaults, pumice_session* id) {
  return add_session({.defaults = std::move(defaults)}, id);
}

ApiStatus EngineHost::add_session(OpenSession session, pumice_session* id) {
  GenerationRequest probe;
  probe.sampling = session.defaults.sampling;
  PUMICE_TRY_STATUS(engine_->check(probe));
  const std::lock_guard lock(mutex_);
  PUMICE_TRY_STATUS(check_alive());
  const pumice_session next = next_id(IdKind::kSession);
  sessions_.emplace(next, std::move(session));
  *id = next;
  return {};
}

ApiStatus EngineHost::close_session(pumice_session id) {
  const std::lock_guard lock(mutex_);
  const auto it = sessions_.find(id);
  if (it == sessions_.end()) return not_found("session", id);
  if (it->second.request != 0) {
    cancelled_.push_back(it->second.request);
    engine_->wake();
  }
  sessions_.erase(it);
  return {};
}

ApiStatus EngineHost::session_tokens(pumice_session id, std::vector<TokenId>* tokens) {
  const std::lock_guard lock(mutex_);
  const auto it = sessions_.find(id);
  if (it == sessions_.end()) return not_found("session", id);
  *tokens = it->second.tokens;
  return {};
}

// ---- requests

ApiStatus EngineHost::submit(pumice_session session, RequestInput input, pumice_request* id) {
  OpenSession before;  // what it holds, which no other thread changes while it is busy
  if (session != 0) {
    const std::lock_guard lock(mutex_);
    const auto it = sessions_.find(session);
    if (it == sessions_.end()) return not_found("session", session);
    if (it->second.busy) {
      return {PUMICE_BUSY, fmt::format("session {} has a request that has not ended", session)};
    }
    before = it->second;
    it->second.busy = true;
  }
  BusyMark mark(*this, session);
  PUMICE_TRY(Prepared prepared, prepare(std::move(input), before));
  prepared.record.session = session;
  const std::lock_guard lock(mutex_);
  PUMICE_TRY_STATUS(check_alive());
  const auto it = sessions_.find(session);
  if (session != 0 && it == sessions_.end()) return not_found("session", session);
  // Room first: an allocation that fails leaves nothing behind.
  if (inbox_.size() == inbox_.capacity()) inbox_.reserve(2 * inbox_.size() + 1);
  const pumice_request next = next_id(IdKind::kRequest);
  requests_.emplace(next, std::move(prepared.record));
  inbox_.push_back({.id = next, .request = std::move(prepared.request)});
  if (session != 0) it->second.request = next;
  mark.keep();
  engine_->wake();
  *id = next;
  return {};
}

ApiStatus EngineHost::cancel(pumice_request id) {
  const std::lock_guard lock(mutex_);
  const auto it = requests_.find(id);
  if (it == requests_.end()) return not_found("request", id);
  if (it->second.ended) return {};
  cancelled_.push_back(id);
  engine_->wake();
  return {};
}

ApiStatus EngineHost::set_mode(EngineMode mode) {
  const std::lock_guard lock(mutex_);
  PUMICE_TRY_STATUS(check_alive());
  new_mode_ = mode;
  return {};
}

// ---- the polling thread

/// `body` with the engine to itself. What it throws is the end of the engine.
template <typename Body>
ApiStatus EngineHost::guard_engine(Body&& body) {
  const std::unique_lock polling(poll_mutex_, std::try_to_lock);
  if (!polling) {
    return {PUMICE_BUSY, "another thread is polling this engine, or waits or takes events"};
  }
  {
    const std::lock_guard lock(mutex_);
    PUMICE_TRY_STATUS(check_alive());
  }
  ApiStatus broken;
  try {
    return body();
  } catch (const std::bad_alloc&) {
    broken = {PUMICE_OUT_OF_MEMORY, "the host is out of memory"};
  } catch (const std::exception& exception) {
    broken = {PUMICE_INTERNAL, exception.what()};
  }
  give_up(broken);
  return broken;
}

ApiStatus EngineHost::prewarm(double seconds, uint32_t* done, uint32_t* total) {
  return guard_engine([&]() -> ApiStatus {
    PUMICE_TRY(const Engine::Readiness readiness, engine_->prewarm(seconds));
    *done = static_cast<uint32_t>(readiness.done);
    *total = static_cast<uint32_t>(readiness.total);
    return {};
  });
}

ApiStatus EngineHost::poll(double budget_s) {
  return guard_engine([&]() -> ApiStatus {
    saved_ = {};
    empty_inbox();
    const ApiStatus status = go_on(budget_s);
    end_overdue();
    update_stats();
    return status;
  });
}

ApiStatus EngineHost::go_on(double budget_s) {
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
    for (const StepEvent& event : *events) add_event(event);
  }
  if (budget_event_due_ && engine_->memory().met) {
    add_event_of_engine(PUMICE_EVENT_BUDGET_MET);
    budget_event_due_ = false;
  }
  return events.ok() ? ApiStatus() : ApiStatus(events.error());
}

/// The scheduler ends what is late when it plans a step, which it does not while there is no
/// device, kernels are compiled or steps fail. Behind the step, as what has landed counts.
void EngineHost::end_overdue() {
  const Clock::time_point now = Clock::now();
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    stop(deadlines_.begin()->second, EndReason::kDeadline);
  }
}

ApiStatus EngineHost::wait(std::chrono::microseconds most) {
  return guard_engine([&]() -> ApiStatus {
    if (!events_.empty()) return {};
    {
      const std::lock_guard lock(mutex_);
      if (!inbox_.empty() || !cancelled_.empty()) return {};
    }
    // Nobody wakes who waits for another device.
    if (is_elsewhere()) most = std::min(most, kLostInterval);
    // What an error is, `poll` finds too.
    (void)engine_->wait(std::chrono::duration<double>(most).count());
    return {};
  });
}

ApiStatus EngineHost::set_memory_budget(uint64_t bytes) {
  return guard_engine([&]() -> ApiStatus {
    PUMICE_TRY_STATUS(engine_->set_memory_budget(bytes));
    budget_event_due_ = bytes != PUMICE_NO_LIMIT;
    return {};
  });
}

ApiStatus EngineHost::next_event(const HostEvent** event) {
  const std::unique_lock polling(poll_mutex_, std::try_to_lock);
  if (!polling) {
    return {PUMICE_BUSY, "another thread is polling this engine, or waits or takes events"};
  }
  *event = nullptr;
  if (events_.empty()) return {};
  taken_ = std::move(events_.front());
  events_.pop_front();
  taken_.event.text = {taken_.text.c_str(), taken_.text.size()};
  taken_.event.message = {taken_.message.c_str(), taken_.message.size()};
  if (taken_.event.kind == PUMICE_EVENT_FINISHED) {
    const std::lock_guard lock(mutex_);
    requests_.erase(taken_.event.request);
  }
  *event = &taken_;
  return {};
}

void EngineHost::empty_inbox() {
  std::vector<Submission> inbox;
  std::vector<pumice_request> cancelled;
  {
    const std::lock_guard lock(mutex_);
    if (new_mode_) engine_->set_mode(*new_mode_);
    new_mode_.reset();
    inbox.swap(inbox_);
    cancelled.swap(cancelled_);
  }
  for (Submission& submission : inbox) start(std::move(submission));
  for (const pumice_request id : cancelled) stop(id, EndReason::kCancelled);
}

void EngineHost::add_event_of_engine(pumice_event_kind kind, std::string message) {
  HostEvent& event = events_.emplace_back();
  event.event.kind = kind;
  event.message = std::move(message);
}

// ---- a lost device

/// Its device was lost or replaced: the model's is another, or there is none yet. The devices
/// themselves are compared: a replacement may come at any moment, also while this engine is being
/// made again on the one before.
bool EngineHost::is_elsewhere() const {
  return is_lost_ || !model_.owner->is_latest(engine_->device());
}

/// Others may have met it, or a call that is not `poll`.
bool EngineHost::has_lost_device() const {
  const std::shared_ptr<vk::Device> device = engine_->device();
  return device != nullptr && device->is_lost();
}

void EngineHost::note_loss(const Error& error) {
  is_lost_ = true;
  why_lost_ = error.message;
  model_.owner->options().logger.warning("{}", error.message);
  add_event_of_engine(PUMICE_EVENT_DEVICE_LOST, error.message);
  events_.back().event.status = PUMICE_DEVICE_LOST;
  const std::lock_guard lock(mutex_);
  ++stats_.n_lost_devices;
  stats_.is_lost = 1;
}

/// Once at a time: a device that is being reset is not there for seconds, nor one that the host
/// makes, and the polling thread is to go on with other things meanwhile.
ApiStatus EngineHost::recover() {
  const Clock::time_point now = Clock::now();
  const uint64_t steps = engine_->scheduler().telemetry().steps;
  const uint64_t generation = model_.owner->generation();
  if (steps != retry_.steps || generation != retry_.generation) retry_ = {};
  if (now < retry_.next) return {PUMICE_DEVICE_LOST, why_lost_};
  retry_.next = now + retry_.pause;
  retry_.pause = std::min(2 * retry_.pause, kLongestPause);
  retry_.steps = steps;
  Engine* const engine = engine_.get();
  const Status recovered = model_.recovery->recover({&engine, 1});
  // Another that the host brought meanwhile is a reason to try again at once, one's own is not.
  retry_.generation = model_.owner->is_lent() ? generation : model_.owner->generation();
  is_lost_ = !recovered.ok();
  see_device();
  if (!recovered.ok()) {
    why_lost_ = recovered.error().message;
    return recovered;
  }
  add_event_of_engine(PUMICE_EVENT_DEVICE_NEW);
  return {};
}

void EngineHost::see_device() {
  const host::OpenedModel session = model_.recovery->opened();
  const std::shared_ptr<vk::Device> device = engine_->device();
  const std::lock_guard lock(mutex_);
  stats_.is_lost = is_lost_;
  device_ = device;
  // Another engine may have taken the model elsewhere meanwhile; this one follows.
  pipelines_ = session.device == device ? session.pipelines : nullptr;
}

void EngineHost::start(Submission submission) {
  const double timeout_s = submission.request.timeout_s;
  const Result<RequestId> running = engine_->submit(std::move(submission.request));
  if (!running.ok()) {
    finish_with_error(submission.id, running.error());
    return;
  }
  running_.emplace(*running, submission.id);
  const std::lock_guard lock(mutex_);
  OpenRequest& request = requests_.at(submission.id);
  request.running = *running;
  if (timeout_s > kLongestTimeout_s) return;
  request.deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                        std::chrono::duration<double>(timeout_s));
  deadlines_.emplace(*request.deadline, submission.id);
}

/// Nothing for one that has ended meanwhile, or was cancelled twice.
void EngineHost::stop(pumice_request id, EndReason reason) {
  const std::lock_guard lock(mutex_);
  const auto it = requests_.find(id);
  if (it == requests_.end() || it->second.ended) return;
  OpenRequest& request = it->second;
  running_.erase(*request.running);
  RequestReport report = engine_->cancel(*request.running).value_or(RequestReport());
  report.end_reason = reason;
  HostEvent event;
  event.text = std::move(report.held_text);
  finish(id, request, report, event);
  events_.push_back(std::move(event));
}

void EngineHost::add_event(const StepEvent& step) {
  const pumice_request id = running_.at(step.request);
  const std::lock_guard lock(mutex_);
  OpenRequest& request = requests_.at(id);
  HostEvent event;
  event.event.kind = step.token ? PUMICE_EVENT_TOKEN : PUMICE_EVENT_PROGRESS;
  event.event.request = id;
  event.event.session = request.session;
  event.event.computed_tokens = step.computed_tokens;
  event.text = step.text;
  if (step.token) {
    event.event.has_token = 1;
    event.event.token = *step.token;
    if (!request.first_token) request.first_token = Clock::now();
    const bool ends_text = step.finished && step.report->end_reason == EndReason::kStop;
    if (!ends_text) {
      request.tokens.push_back(*step.token);
      ++request.n_streamed;
      ++request.last.n_tokens;
      ++request.last.next_output_index;
    }
  }
  if (step.finished) {
    running_.erase(step.request);
    finish(id, request, *step.report, event);
  } else {
    request.given_bytes += step.text.size();
    if (request.conversation) request.answer += step.text;
  }
  events_.push_back(std::move(event));
}

/// Makes `event` the last one of a request. With mutex_ held, as `settle`.
void EngineHost::finish(pumice_request id, OpenRequest& request, const RequestReport& report,
                        HostEvent& event) {
  if (request.deadline) deadlines_.erase({*request.deadline, id});
  pumice_event& out = event.event;
  out.kind = PUMICE_EVENT_FINISHED;
  out.request = id;
  out.session = request.session;
  out.end_reason = reason_of(report.end_reason);
  out.prompt_tokens = report.prompt_tokens;
  out.cached_tokens = report.cache.cached_tokens;
  out.generated_tokens = report.generated_tokens;
  out.forgotten_questions = request.n_forgotten;
  if (request.first_token) {
    out.first_token_us = microseconds_of(*request.first_token - request.submitted);
  }
  out.total_us = microseconds_of(Clock::now() - request.submitted);
  if (out.end_reason == PUMICE_END_ERROR && out.status == PUMICE_OK) {
    const ApiStatus failure(report.failure);
    out.status = failure.ok() ? PUMICE_INTERNAL : failure.code();
    event.message =
        failure.ok() ? "the engine could not go on with this request" : failure.message();
  }
  request.answer += event.text;
  settle(request, out.end_reason != PUMICE_END_ERROR);
}

void EngineHost::finish_with_error(pumice_request id, const ApiStatus& status) {
  HostEvent event;
  event.event.status = status.code();
  event.message = status.message();
  const std::lock_guard lock(mutex_);
  OpenRequest& request = requests_.at(id);
  finish(id, request, {.end_reason = EndReason::kError}, event);
  events_.push_back(std::move(event));
}

/// The request has ended: its session holds what was said, or with !keep what it held before.
void EngineHost::settle(OpenRequest& request, bool keep) {
  request.ended = true;
  const auto it = sessions_.find(request.session);
  if (it == sessions_.end()) return;
  OpenSession& session = it->second;
  session.busy = false;
  session.request = 0;
  if (keep) keep_what_was_said(std::move(request), session);
}

void EngineHost::keep_what_was_said(OpenRequest request, OpenSession& session) {
  session.tokens = std::move(request.tokens);
  session.last = request.last;
  if (!request.conversation) return;
  request.conversation->answer(std::move(request.answer));
  session.conversation = std::move(*request.conversation);
  if (request.n_forgotten != 0) session.n_forgotten = request.n_forgotten;
}

// ---- saved sessions

std::string EngineHost::text_of(std::span<const TokenId> tokens) const {
  TextStream stream(model_.tokenizer, {});
  std::string text;
  for (const TokenId token : tokens) text += stream.feed(token);
  return text + stream.flush();
}

ApiStatus EngineHost::sequence_of(pumice_session id, SavedSequence* sequence) const {
  OpenSession session;
  std::optional<OpenRequest> request;
  {
    const std::lock_guard lock(mutex_);
    const auto it = sessions_.find(id);
    if (it == sessions_.end()) return not_found("session", id);
    session = it->second;
    if (session.request != 0) request = requests_.at(session.request);
  }
  if (request) {
    const std::string text = text_of(std::span(request->tokens).last(request->n_streamed));
    const std::string held = text.substr(std::min(request->given_bytes, text.size()));
    request->answer += held;
    request->last.held_bytes = held.size();
    keep_what_was_said(*std::move(request), session);
  }
  const auto n_tokens = static_cast<uint32_t>(session.tokens.size());
  *sequence = {
      .tokens = std::move(session.tokens),
      .n_prompt = n_tokens - session.last.n_tokens,
      .sampling = std::move(session.defaults.sampling),
      .next_output_index = session.last.next_output_index,
      .salt = std::move(session.defaults.salt),
      .note = host::write_conversation_note({.service_class = session.defaults.service_class,
                                             .priority = session.defaults.priority,
                                             .max_tokens_per_s = session.defaults.max_tokens_per_s,
                                             .delivery = session.defaults.delivery,
                                             .held_bytes = session.last.held_bytes,
                                             .conversation = std::move(session.conversation)})};
  return {};
}

ApiStatus EngineHost::save_session(pumice_session id, std::span<const std::byte>* bytes) {
  SavedSequence sequence;
  PUMICE_TRY_STATUS(sequence_of(id, &sequence));
  return guard_engine([&]() -> ApiStatus {
    saved_ = {};
    PUMICE_TRY(saved_, engine_->save(std::move(sequence)));
    *bytes = saved_;
    return {};
  });
}

ApiStatus EngineHost::restore_session(std::span<const std::byte> bytes,
                                      const RestoreOptions& options, pumice_session* id) {
  SavedSequence sequence;
  PUMICE_TRY_STATUS(guard_engine([&]() -> ApiStatus {
    PUMICE_TRY(sequence, engine_->restore(bytes, options));
    return {};
  }));
  PUMICE_TRY(host::ConversationNote note, host::read_conversation_note(sequence.note));
  OpenSession session{.defaults = {.sampling = std::move(sequence.sampling),
                                   .service_class = note.service_class,
                                   .priority = note.priority,
                                   .salt = std::move(sequence.salt),
                                   .max_tokens_per_s = note.max_tokens_per_s,
                                   .delivery = note.delivery},
                      .tokens = std::move(sequence.tokens),
                      .last = {.next_output_index = sequence.next_output_index,
                               .held_bytes = static_cast<size_t>(note.held_bytes)},
                      .conversation = std::move(note.conversation)};
  session.last.n_tokens = static_cast<uint32_t>(session.tokens.size()) - sequence.n_prompt;
  return add_session(std::move(session), id);
}

/// After what must not happen, nothing is known of the engine: every request ends here.
void EngineHost::give_up(const ApiStatus& status) {
  std::vector<pumice_request> open;
  {
    const std::lock_guard lock(mutex_);
    broken_ = status.code();
    why_broken_ = status.message();
    for (const auto& [id, request] : requests_) {
      if (!request.ended) open.push_back(id);
    }
  }
  for (const pumice_request id : open) finish_with_error(id, status);
}

// ---- numbers

void EngineHost::update_stats() {
  const Telemetry& telemetry = engine_->scheduler().telemetry();
  const std::lock_guard lock(mutex_);
  stats_.steps = telemetry.steps;
  stats_.failed_steps = telemetry.failed_steps;
  stats_.prompt_tokens = telemetry.prompt_tokens;
  stats_.cached_tokens = telemetry.cached_tokens;
  stats_.generated_tokens = telemetry.generated_tokens;
  stats_.preemptions = telemetry.preemptions;
  stats_.kernels_compiled_after_prewarm = engine_->pipelines_compiled_after_prewarm();
  stats_.allocations_after_prewarm = engine_->allocations_after_prewarm();
  const MemoryStatus& memory = engine_->memory();
  stats_.memory_budget_bytes = memory.budget_bytes != UINT64_MAX ? memory.budget_bytes : 0;
  stats_.memory_budget_met = memory.met;
  stats_.n_overcommitted = memory.n_overcommitted;
  stats_.weight_bytes_beside = memory.weight_bytes_beside;
  stats_.driver_budget_bytes = memory.driver ? memory.driver->budget_bytes : 0;
  stats_.driver_used_bytes = memory.driver ? memory.driver->used_bytes : 0;
}

pumice_stats EngineHost::stats() {
  // Held to the end, when the device is nobody's here any more: a poll that has let go of it takes
  // this lock before it says so (see_device).
  const std::lock_guard lock(mutex_);
  const std::shared_ptr<vk::Device> device = device_.lock();
  const std::shared_ptr<vk::PipelineLibrary> pipelines = pipelines_.lock();
  pumice_stats stats = stats_;
  stats.open_requests = static_cast<uint32_t>(requests_.size());
  stats.open_sessions = static_cast<uint32_t>(sessions_.size());
  if (device == nullptr) return stats;
  for (const auto& [purpose, entry] : device->ledger().entries()) {
    stats.device_bytes += entry.current_bytes;
    if (purpose == "weights") stats.weight_bytes = entry.current_bytes;
    if (purpose == "KV cache") stats.kv_bytes = entry.current_bytes;
  }
  stats.budgeted_bytes = device->ledger().budgeted_bytes();
  if (pipelines != nullptr) stats.kernels = pipelines->compiled_count();
  return stats;
}

}  // namespace pumice::api
