#include "engine/requests.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "engine/engine_limits.hpp"

namespace pumice {

// ---- what a client does

Status Requests::check(const GenerationRequest& request) const {
  PUMICE_TRY_STATUS(request.sampling.validate(limits_.n_vocab));
  if (limits_.greedy_only && !is_plain_greedy(request.sampling)) {
    return make_error(ErrorCode::kInvalidArgument, "this engine was made for greedy requests only");
  }
  if (request.sampling.logit_bias.size() > kMaxLogitBias) {
    return make_error(ErrorCode::kInvalidArgument, "{} logit biases exceed {}",
                      request.sampling.logit_bias.size(), kMaxLogitBias);
  }
  for (const TokenId token : request.prompt) {
    if (token >= limits_.n_vocab) {
      return make_error(ErrorCode::kInvalidArgument, "token {} is outside the vocabulary of {}",
                        token, limits_.n_vocab);
    }
  }
  if (request.on_logits && !limits_.logits) {
    return make_error(ErrorCode::kInvalidArgument, "this engine was not made for prompt logits");
  }
  if (request.n_output_in_prompt > request.prompt.size() ||
      (request.n_output_in_prompt > 0 && request.on_logits)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "n_output_in_prompt is {} in a prompt of {} tokens{}",
                      request.n_output_in_prompt, request.prompt.size(),
                      request.on_logits ? " whose logits are wanted" : "");
  }
  PUMICE_TRY_STATUS(validate_stop_strings(request.stop_strings));
  if (!request.stop_strings.empty() && request.tokenizer == nullptr) {
    return make_error(ErrorCode::kInvalidArgument, "stop strings need a tokenizer");
  }
  if (request.delivery == GenerationRequest::Delivery::kSentence && request.tokenizer == nullptr) {
    return make_error(ErrorCode::kInvalidArgument, "sentences need a tokenizer");
  }
  const uint64_t wanted = request.prompt.size() + uint64_t{request.max_new_tokens};
  if (wanted > limits_.window_tokens && limits_.overflow == OverflowPolicy::kStop) {
    return make_error(ErrorCode::kDoesNotFit,
                      "{} prompt + {} new tokens exceed the context of {} by {} tokens",
                      request.prompt.size(), request.max_new_tokens, limits_.window_tokens,
                      wanted - limits_.window_tokens);
  }
  return {};
}

Result<RequestId> Requests::submit(GenerationRequest request, double now_s) {
  PUMICE_TRY_STATUS(check(request));
  Active active;
  std::vector<TokenId> prompt = std::exchange(request.prompt, {});
  const uint32_t window = limits_.window_tokens;
  if (prompt.size() > window && limits_.overflow == OverflowPolicy::kTruncateOldest) {
    const uint32_t room = std::min(request.max_new_tokens, window / 2);
    active.truncated_tokens = static_cast<uint32_t>(prompt.size()) - (window - room);
    prompt.erase(prompt.begin(), prompt.begin() + static_cast<ptrdiff_t>(active.truncated_tokens));
  }
  const auto n_output =
      static_cast<uint32_t>(std::min<size_t>(request.n_output_in_prompt, prompt.size()));
  active.n_prompt = static_cast<uint32_t>(prompt.size()) - n_output;
  active.tokens = prompt;
  active.told.assign(prompt.begin() + active.n_prompt, prompt.end());
  active.n_restored = n_output;
  RequestSpec spec{.prompt = std::move(prompt),
                   .max_new_tokens = request.max_new_tokens,
                   .service_class = request.service_class,
                   .priority = request.priority,
                   .deadline_s = now_s + request.timeout_s,
                   .salt = request.salt,
                   .max_tokens_per_s = request.max_tokens_per_s};
  // Every position of it has to be computed: it shares nothing.
  if (request.on_logits && request.logits == GenerationRequest::Logits::kPrompt) {
    spec.salt = private_salt();
  }
  active.request = std::move(request);
  begin_text(active);
  // What needs memory comes first: a request is known here and to the scheduler, or to neither.
  std::map<RequestId, Active> one;
  one.emplace(0, std::move(active));
  auto node = one.extract(0);
  PUMICE_TRY(const RequestId id, scheduler_.add(std::move(spec), now_s));
  node.key() = id;
  requests_.insert(std::move(node));
  return id;
}

std::optional<RequestReport> Requests::cancel(RequestId id, double now_s) {
  std::optional<RequestReport> report;
  std::string held;
  for (const StepEvent& event : events_) {
    if (event.request != id) continue;
    held += event.text;
    if (event.report) report = event.report;
  }
  if (const auto it = requests_.find(id); it != requests_.end()) {
    held += rest_of(it->second);
    scheduler_.cancel(id, now_s);
    report = report_of(id, EndReason::kNone);
    scheduler_.remove(id);
    requests_.erase(it);
  }
  std::erase_if(events_, [&](const StepEvent& event) { return event.request == id; });
  if (report) report->held_text = std::move(held);
  return report;
}

/// `ended_by`: of its last token, which counts though the request had as many as it asked for.
RequestReport Requests::report_of(RequestId id, EndReason ended_by) const {
  const Request& request = scheduler_.request(id);
  const Active& active = requests_.at(id);
  return {.end_reason = ended_by != EndReason::kNone ? ended_by : request.end_reason,
          .failure = request.failure,
          .prompt_tokens = request.prompt_tokens,
          .generated_tokens = request.generated_tokens,
          .cache = request.cache,
          .times = request.times,
          .prefill_iterations = request.prefill_iterations,
          .preemptions = request.preemptions,
          .shifts = active.shifts,
          .truncated_tokens = active.truncated_tokens};
}

// ---- what a step does

StepPlan Requests::plan(double now_s) {
  StepPlan plan = scheduler_.plan_step(now_s);
  for (const RequestId id : plan.ended) {
    tell({.request = id, .computed_tokens = scheduler_.request(id).computed_tokens},
         EndReason::kNone, now_s);
  }
  return plan;
}

bool Requests::finish_transfers(const StepPlan& plan, const TransferFailures& failures) {
  if (!scheduler_.finish_transfers(plan, failures)) return false;
  if (scheduler_.counts(plan.id)) return true;
  scheduler_.rollback(plan.id);
  return false;
}

void Requests::commit(const StepPlan& plan, std::span<const TokenId> sampled, double now_s,
                      double seconds) {
  const std::vector<ChunkOutcome> outcomes = scheduler_.commit(plan.id, sampled, now_s, seconds);
  size_t n_sampled = 0;
  for (size_t i = 0; i < outcomes.size(); ++i) {
    const StepChunk& chunk = plan.chunks[i];
    const TokenId token = chunk.samples ? sampled[n_sampled++] : 0;
    if (!outcomes[i].counts) continue;
    StepEvent event{.request = chunk.request,
                    .computed_tokens = chunk.first_position + chunk.n_tokens};
    const EndReason ended_by = outcomes[i].sampled
                                   ? read_token(requests_.at(chunk.request), token, event)
                                   : EndReason::kNone;
    tell(std::move(event), ended_by, now_s);
  }
}

namespace {

bool ends_request(const GenerationRequest& request, TokenId token) {
  if (std::ranges::find(request.end_tokens, token) != request.end_tokens.end()) return true;
  return request.tokenizer != nullptr && !request.ignore_end &&
         request.tokenizer->vocabulary().ends_generation(token);
}

}  // namespace

/// Its text is where it was after what was told of it.
void Requests::begin_text(Active& active) {
  const GenerationRequest& request = active.request;
  if (request.tokenizer == nullptr) return;
  active.stream = std::make_unique<TextStream>(request.tokenizer, request.stop_strings);
  active.sentences = nullptr;
  if (request.delivery == GenerationRequest::Delivery::kSentence) {
    active.sentences = std::make_unique<SentenceStream>();
  }
  const size_t n_given = request.prompt_text_given ? active.n_restored : 0;
  for (const TokenId token : std::span(active.told).subspan(n_given)) (void)text_of(active, token);
}

/// What became final with it.
std::string Requests::text_of(Active& active, TokenId token) {
  if (!active.stream) return {};
  std::string text = active.stream->feed(token);
  return active.sentences ? active.sentences->feed(text) : text;
}

/// All that is held back.
std::string Requests::rest_of(Active& active) {
  if (!active.stream) return {};
  std::string text = active.stream->flush();
  if (!active.sentences) return text;
  text = active.sentences->feed(text);
  return text + active.sentences->flush();
}

/// Why it is the last one, if it is for what it says. That it was read is known to the stream alone
/// until the event is told.
EndReason Requests::read_token(Active& active, TokenId token, StepEvent& event) {
  event.token = token;
  if (ends_request(active.request, token)) return EndReason::kStop;
  if (!active.stream) return EndReason::kNone;
  event.text = text_of(active, token);
  return active.stream->stopped() ? EndReason::kStopString : EndReason::kNone;
}

namespace {

template <typename T>
void make_room_for_one(std::vector<T>& values) {
  if (values.size() == values.capacity()) values.reserve(2 * values.size() + 8);
}

}  // namespace

/// The event is one of a request that the step has changed, or ended. Told is told: what may fail
/// comes before, and what is left behind `start_over` can do as well.
void Requests::tell(StepEvent event, EndReason ended_by, double now_s) {
  const RequestId id = event.request;
  const auto it = requests_.find(id);
  Active& active = it->second;
  if (ended_by != EndReason::kNone) scheduler_.end(id, ended_by, now_s);
  event.finished = scheduler_.request(id).ended();
  if (event.finished) {
    event.text += rest_of(active);
    event.report = report_of(id, ended_by);
  }
  for (auto* tokens : {&active.told, &active.tokens}) make_room_for_one(*tokens);
  make_room_for_one(events_);
  // From here to the end of its request nothing fails.
  if (event.token) {
    active.told.push_back(*event.token);
    active.tokens.push_back(*event.token);
  }
  events_.push_back(std::move(event));
  if (scheduler_.request(id).ended()) {
    requests_.erase(it);
    scheduler_.remove(id);
  } else if (active.tokens.size() > limits_.window_tokens) {
    shift_window(id);
  }
}

/// A request's window is full: drop its older tokens and go on with the rest, recomputed.
void Requests::shift_window(RequestId id) {
  Active& active = requests_.at(id);
  std::vector<TokenId> tokens = active.tokens;
  const size_t kept = limits_.overflow == OverflowPolicy::kShift
                          ? std::min<size_t>(limits_.keep_tokens, limits_.window_tokens / 2)
                          : 0;
  const size_t n_dropped = (tokens.size() - kept + 1) / 2;
  const auto first = tokens.begin() + static_cast<ptrdiff_t>(kept);
  tokens.erase(first, first + static_cast<ptrdiff_t>(n_dropped));
  const size_t from_prompt =
      std::min(n_dropped, active.n_prompt > kept ? active.n_prompt - kept : 0);
  scheduler_.restart(id, tokens);
  active.n_prompt -= static_cast<uint32_t>(from_prompt);
  ++active.shifts;
  active.tokens = std::move(tokens);
}

void Requests::start_over() {
  Scheduler scheduler = Scheduler::in_place_of(scheduler_);
  for (const auto& [id, active] : requests_) {
    scheduler.adopt(scheduler_.request(id), active.tokens,
                    static_cast<uint32_t>(active.told.size()) - active.n_restored);
  }
  for (auto& [id, active] : requests_) begin_text(active);
  scheduler_ = std::move(scheduler);
  for (auto& [id, active] : requests_) {
    if (active.tokens.size() > limits_.window_tokens) shift_window(id);
  }
}

// ---- what a step reads

uint64_t Requests::output_index(const StepChunk& chunk) const {
  const uint64_t next = uint64_t{chunk.first_position} + chunk.n_tokens;
  return next_output_index(chunk.request) + (next - scheduler_.tokens(chunk.request).size());
}

uint64_t Requests::next_output_index(RequestId id) const {
  return requests_.at(id).request.first_output_index + scheduler_.request(id).generated_tokens;
}

const GenerationRequest* Requests::find(RequestId id) const {
  const auto it = requests_.find(id);
  return it != requests_.end() ? &it->second.request : nullptr;
}

bool Requests::wants_logits(RequestId id, uint32_t position) const {
  const Active& active = requests_.at(id);
  return active.request.on_logits && position >= active.request.first_logits &&
         (position < active.n_prompt ||
          active.request.logits == GenerationRequest::Logits::kComputed);
}

void Requests::deliver_logits(RequestId id, uint32_t position,
                              std::span<const float> logits) const {
  const auto it = requests_.find(id);
  if (it != requests_.end()) it->second.request.on_logits(position, logits);
}

Status Requests::check_integrity() const {
  PUMICE_TRY_STATUS(scheduler_.check_integrity());
  for (const auto& [id, active] : requests_) {
    const Request& request = scheduler_.request(id);
    if (request.ended()) {
      return make_error(ErrorCode::kInternal, "request {} has ended and is still here", id);
    }
    if (scheduler_.tokens(id).size() != request.sequence_tokens) {
      return make_error(ErrorCode::kInternal, "request {} has {} tokens of {}", id,
                        scheduler_.tokens(id).size(), request.sequence_tokens);
    }
    if (!std::ranges::equal(scheduler_.tokens(id), active.tokens) ||
        request.generated_tokens + active.n_restored != active.told.size()) {
      return make_error(ErrorCode::kInternal, "request {} has other tokens than it was told", id);
    }
  }
  if (requests_.size() != scheduler_.n_waiting() + scheduler_.n_running()) {
    return make_error(ErrorCode::kInternal, "{} requests, {} wait and {} run", requests_.size(),
                      scheduler_.n_waiting(), scheduler_.n_running());
  }
  return {};
}

}  // namespace pumice
