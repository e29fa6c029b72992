#include "api/engine_host.hpp"

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "base/printable.hpp"

namespace pumice::api {
namespace {

/// Numbers of engines that are alive at once differ, and so most likely do those of one that was
/// closed: 22 bits of where it lies and when it was made.
uint64_t tag_of(const void* engine) {
  const auto place = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(engine));
  const auto time =
      static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  return ((place ^ (time << 17)) * 0x9E3779B97F4A7C15u) >> 42;
}

ApiStatus not_found(std::string_view what, uint64_t id) {
  return {PUMICE_NOT_FOUND, fmt::format("{} {} is none of this engine's, or is gone", what, id)};
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

Result<Conversation> with_messages(Conversation conversation,
                                   const std::vector<ChatMessage>& messages) {
  for (const ChatMessage& message : messages) {
    if (message.role == "system") {
      conversation.set_system(message.content);
    } else if (message.role == "user") {
      conversation.ask(message.content);
    } else if (message.role == "assistant") {
      conversation.answer(message.content);
    } else {
      return make_error(ErrorCode::kInvalidArgument,
                        "a message's role is \"{}\", expected system, user or assistant",
                        printable(message.role));
    }
  }
  if (conversation.messages().empty() || conversation.messages().back().role != "user") {
    return make_error(ErrorCode::kInvalidArgument, "the last message must be the user's");
  }
  return conversation;
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
      engine_(std::move(engine)) {}

EngineHost::~EngineHost() = default;

void EngineHost::keep_for_next_run() {
  if (broken_ == PUMICE_OK && !model_.session.options.cache_directory.empty()) {
    model_.session.keep_for_next_run(*engine_);
  }
}

/// Never 0, and never the same again.
uint64_t EngineHost::next_id(IdKind kind) {
  return tag_ << 42 | ++n_ids_ << 1 | static_cast<uint64_t>(kind);
}

ApiStatus EngineHost::check_alive() const {
  if (broken_ == PUMICE_OK) return {};
  return {broken_, "the engine can only be closed: " + why_broken_};
}

// ---- sessions

ApiStatus EngineHost::open_session(SessionDefaults defaults, pumice_session* id) {
  GenerationRequest probe;
  probe.sampling = defaults.sampling;
  PUMICE_TRY_STATUS(engine_->check(probe));
  const std::lock_guard lock(mutex_);
  PUMICE_TRY_STATUS(check_alive());
  const pumice_session next = next_id(IdKind::kSession);
  sessions_.emplace(next, OpenSession{.defaults = std::move(defaults)});
  *id = next;
  return {};
}

ApiStatus EngineHost::close_session(pumice_session id) {
  const std::lock_guard lock(mutex_);
  const auto it = sessions_.find(id);
  if (it == sessions_.end()) return not_found("session", id);
  if (it->second.request != 0) {
    cancelled_.push_back(it->second.request);
    inbox_changed_.notify_all();
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

// ---- from a caller's words to a request

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
  inbox_.reserve(inbox_.size() + 1);
  const pumice_request next = next_id(IdKind::kRequest);
  requests_.emplace(next, std::move(prepared.record));
  inbox_.push_back({.id = next, .request = std::move(prepared.request)});
  if (session != 0) it->second.request = next;
  mark.keep();
  inbox_changed_.notify_all();
  *id = next;
  return {};
}

Result<EngineHost::Prepared> EngineHost::prepare(RequestInput input,
                                                 const OpenSession& session) const {
  Prepared prepared;
  prepared.record.submitted = Clock::now();
  GenerationRequest& request = prepared.request;
  request.sampling = input.sampling ? std::move(*input.sampling) : session.defaults.sampling;
  request.tokenizer = model_.tokenizer;
  request.ignore_end = input.ignore_end;
  request.stop_strings = std::move(input.stops);
  request.service_class = session.defaults.service_class;
  request.priority = session.defaults.priority;
  request.timeout_s = input.timeout_s;
  request.salt = session.defaults.salt;
  PUMICE_TRY_STATUS(input.messages.empty() ? add_text(input, session, prepared)
                                           : add_messages(input, session, prepared));
  if (request.prompt.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "the prompt is empty");
  }
  PUMICE_TRY(request.max_new_tokens, new_tokens(input.max_new_tokens, request.prompt.size()));
  PUMICE_TRY_STATUS(engine_->check(request));
  prepared.record.tokens = request.prompt;
  return prepared;
}

Status EngineHost::add_text(const RequestInput& input, const OpenSession& session,
                            Prepared& prepared) const {
  if (!session.conversation.messages().empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "this session is one of messages, which text or tokens cannot go on with");
  }
  if (input.text.empty() && input.tokens.empty() && session.tokens.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "there is no prompt: text, tokens or messages");
  }
  std::vector<TokenId>& prompt = prepared.request.prompt;
  prompt = session.tokens;
  if (!input.tokens.empty()) {
    prompt.insert(prompt.end(), input.tokens.begin(), input.tokens.end());
  } else {
    PUMICE_TRY(const std::vector<TokenId> tokens,
               model_.tokenizer->encode(input.text, {.add_special = session.tokens.empty(),
                                                     .parse_special = input.special}));
    prompt.insert(prompt.end(), tokens.begin(), tokens.end());
  }
  if (!session.tokens.empty()) make_room(input.max_new_tokens, prompt);
  return {};
}

Status EngineHost::add_messages(const RequestInput& input, const OpenSession& session,
                                Prepared& prepared) const {
  if (session.conversation.messages().empty() && !session.tokens.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "this session is one of text, which messages cannot go on with");
  }
  if (!model_.format->ok()) return model_.format->error();
  PUMICE_TRY(Conversation conversation, with_messages(session.conversation, input.messages));
  // Without a number a quarter of the context is the answer's.
  const uint32_t wanted = input.max_new_tokens != 0 ? input.max_new_tokens : window_ / 4;
  const uint32_t room = window_ - std::clamp(wanted, 1u, std::max(window_ / 2, 1u));
  PUMICE_TRY(FittedPrompt fitted, fit_prompt(conversation, **model_.format, *model_.tokenizer, room,
                                             overflow_ != OverflowPolicy::kStop));
  prepared.request.prompt = std::move(fitted.tokens);
  prepared.record.n_forgotten = static_cast<uint32_t>(fitted.n_forgotten);
  if (ReasoningSplitter::is_open(fitted.text)) prepared.record.answer = "<think>\n";
  prepared.record.conversation = std::move(conversation);
  return {};
}

/// A session whose text outgrew a context that shifts loses older text, as a request would.
void EngineHost::make_room(uint32_t max_new_tokens, std::vector<TokenId>& prompt) const {
  if (overflow_ != OverflowPolicy::kShift) return;
  const uint32_t wanted = std::clamp(max_new_tokens, 1u, std::max(window_ / 2, 1u));
  const size_t most = window_ - wanted;
  if (prompt.size() <= most) return;
  const size_t n_kept = std::min<size_t>(keep_tokens_, most);
  const auto first = prompt.begin() + static_cast<ptrdiff_t>(n_kept);
  prompt.erase(first, first + static_cast<ptrdiff_t>(prompt.size() - most));
}

Result<uint32_t> EngineHost::new_tokens(uint32_t wanted, size_t prompt_tokens) const {
  if (wanted != 0) return wanted;
  if (overflow_ != OverflowPolicy::kStop) return window_;
  if (prompt_tokens < window_) return window_ - static_cast<uint32_t>(prompt_tokens);
  return make_error(ErrorCode::kDoesNotFit,
                    "a prompt of {} tokens leaves no room for an answer in a context of {}",
                    prompt_tokens, window_);
}

ApiStatus EngineHost::cancel(pumice_request id) {
  const std::lock_guard lock(mutex_);
  const auto it = requests_.find(id);
  if (it == requests_.end()) return not_found("request", id);
  if (it->second.ended) return {};
  cancelled_.push_back(id);
  inbox_changed_.notify_all();
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
    empty_inbox();
    Result<std::vector<StepEvent>> events = engine_->poll(budget_s);
    if (events.ok()) {
      for (const StepEvent& event : *events) add_event(event);
    }
    update_stats();
    return events.ok() ? ApiStatus() : ApiStatus(events.error());
  });
}

ApiStatus EngineHost::wait(std::chrono::microseconds most) {
  return guard_engine([&]() -> ApiStatus {
    if (!events_.empty()) return {};
    std::unique_lock lock(mutex_);
    const auto has_work = [&] { return !inbox_.empty() || !cancelled_.empty(); };
    if (has_work()) return {};
    if (engine_->idle()) {
      // Waiting without a bound is waiting for an hour again and again.
      constexpr std::chrono::microseconds kMost = std::chrono::hours(1);
      while (!inbox_changed_.wait_for(lock, std::min(most, kMost), has_work) && most > kMost) {
        if (most != std::chrono::microseconds::max()) most -= kMost;
      }
      return {};
    }
    lock.unlock();
    return engine_->wait(std::chrono::duration<double>(most).count());
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
    inbox.swap(inbox_);
    cancelled.swap(cancelled_);
  }
  for (Submission& submission : inbox) start(std::move(submission));
  for (const pumice_request id : cancelled) stop(id);
}

void EngineHost::start(Submission submission) {
  const Result<RequestId> running = engine_->submit(std::move(submission.request));
  if (!running.ok()) {
    finish_with_error(submission.id, running.error());
    return;
  }
  running_.emplace(*running, submission.id);
  const std::lock_guard lock(mutex_);
  requests_.at(submission.id).running = *running;
}

/// Nothing for one that has ended meanwhile, or was cancelled twice.
void EngineHost::stop(pumice_request id) {
  const std::lock_guard lock(mutex_);
  const auto it = requests_.find(id);
  if (it == requests_.end() || it->second.ended) return;
  OpenRequest& request = it->second;
  running_.erase(*request.running);
  RequestReport report = engine_->cancel(*request.running)
                             .value_or(RequestReport{.end_reason = EndReason::kCancelled});
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
    if (!ends_text) request.tokens.push_back(*step.token);
  }
  if (step.finished) {
    running_.erase(step.request);
    finish(id, request, *step.report, event);
  } else if (request.conversation) {
    request.answer += step.text;
  }
  events_.push_back(std::move(event));
}

/// Makes `event` the last one of a request. With mutex_ held, as `settle`.
void EngineHost::finish(pumice_request id, OpenRequest& request, const RequestReport& report,
                        HostEvent& event) {
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
  if (!keep) return;
  session.tokens = std::move(request.tokens);
  if (!request.conversation) return;
  request.conversation->answer(std::move(request.answer));
  session.conversation = std::move(*request.conversation);
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
}

pumice_stats EngineHost::stats() {
  pumice_stats stats;
  {
    const std::lock_guard lock(mutex_);
    stats = stats_;
    stats.open_requests = static_cast<uint32_t>(requests_.size());
    stats.open_sessions = static_cast<uint32_t>(sessions_.size());
  }
  for (const auto& [purpose, entry] : model_.session.device->ledger().entries()) {
    stats.device_bytes += entry.current_bytes;
    if (purpose == "weights") stats.weight_bytes = entry.current_bytes;
    if (purpose == "KV cache") stats.kv_bytes = entry.current_bytes;
  }
  stats.kernels = model_.session.pipelines->compiled_count();
  return stats;
}

}  // namespace pumice::api
