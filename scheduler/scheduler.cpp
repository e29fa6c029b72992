#include "scheduler/scheduler.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace pumice {
namespace {

constexpr uint32_t kLeastBudgetTokens = 16;

}  // namespace

std::string_view request_state_name(RequestState state) {
  constexpr std::string_view kNames[] = {"waiting",  "prefilling", "decoding",
                                         "finished", "cancelled",  "failed"};
  return kNames[static_cast<size_t>(state)];
}

std::string_view service_class_name(ServiceClass service_class) {
  constexpr std::string_view kNames[] = {"interactive", "normal", "batch"};
  return kNames[static_cast<size_t>(service_class)];
}

std::string_view end_reason_name(EndReason reason) {
  constexpr std::string_view kNames[] = {"none",   "length",         "stop",     "stop_string",
                                         "window", "cancelled",      "deadline", "error",
                                         "stop",   "cache_threshold"};
  return kNames[static_cast<size_t>(reason)];
}

uint32_t StepPlan::n_tokens() const {
  uint32_t total = 0;
  for (const StepChunk& chunk : chunks) total += chunk.shares_row ? 0 : chunk.n_tokens;
  return total;
}

Result<Scheduler> Scheduler::create(const SchedulerOptions& options, KvCacheOptions cache,
                                    const CostModel& cost) {
  // Larger blocks are read in several steps.
  const uint32_t least = std::min(cache.block_tokens, kLeastBudgetTokens);
  if (options.token_budget < least) {
    return make_error(ErrorCode::kInvalidArgument,
                      "a token budget of {} is below one block of {} tokens; raise -b",
                      options.token_budget, least);
  }
  if (options.chunk_tokens == 0 || options.max_running == 0 || options.max_partial_prefills == 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "the chunk size, the number of requests at once and that of prompts read at "
                      "once must be positive");
  }
  if (options.max_running > UINT32_MAX / kMaxOutstanding) {
    return make_error(ErrorCode::kInvalidArgument, "{} requests at once are more than {}",
                      options.max_running, UINT32_MAX / kMaxOutstanding);
  }
  if (!(options.tpot_target_s >= 0) || !std::isfinite(options.tpot_target_s)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "the target time between tokens must be finite and not negative");
  }
  if (!(options.aging_s >= 0) || !std::isfinite(options.aging_s)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "the time after which a class gets a turn must be finite and not negative");
  }
  PUMICE_TRY_STATUS(PageKinds::check(cache.kinds));
  Scheduler scheduler(options, cache, cost);
  PUMICE_TRY_STATUS(scheduler.check_target());
  return scheduler;
}

Scheduler::Scheduler(const SchedulerOptions& options, KvCacheOptions cache, const CostModel& cost)
    : options_(options),
      cache_(cache),
      cost_(cost),
      slots_(options.max_running * static_cast<uint32_t>(kMaxOutstanding)) {
  options_.chunk_tokens = std::min(options_.chunk_tokens, options_.token_budget);
}

Status Scheduler::check_target() const {
  const double one_row_s = cost_.predict({.decode_rows = 1});
  if (options_.tpot_target_s > 0 && cost_.calibrated() && options_.tpot_target_s < one_row_s) {
    return make_error(ErrorCode::kInvalidArgument,
                      "a target of {:.2f} ms between tokens is below the {:.2f} ms that one row "
                      "alone takes on this device",
                      options_.tpot_target_s * 1e3, one_row_s * 1e3);
  }
  return {};
}

uint32_t Scheduler::blocks_for(uint64_t n_tokens) const {
  const uint32_t block_tokens = cache_.options().block_tokens;
  return static_cast<uint32_t>((n_tokens + block_tokens - 1) / block_tokens);
}

// ---- requests

Result<RequestId> Scheduler::add(RequestSpec spec, double now_s) {
  const bool keyed = cache_.options().keyed;
  const uint64_t prompt_tokens = keyed ? spec.n_keyed_tokens : spec.prompt.size();
  if (prompt_tokens == 0) return make_error(ErrorCode::kInvalidArgument, "the prompt is empty");
  if (spec.id && requests_.contains(*spec.id)) {
    return make_error(ErrorCode::kInvalidArgument, "request id {} is in use", *spec.id);
  }
  uint64_t most = prompt_tokens + spec.max_new_tokens;
  if (options_.window_tokens != 0) {
    if (prompt_tokens > options_.window_tokens) {
      return make_error(
          ErrorCode::kDoesNotFit, "a prompt of {} tokens exceeds the window of {} by {} tokens",
          prompt_tokens, options_.window_tokens, prompt_tokens - options_.window_tokens);
    }
    most = std::min<uint64_t>(most, options_.window_tokens);
  }
  // What it needs when it runs alone, a token at a time.
  const uint64_t n_pages = cache_.kinds().pages_for(most, 1);
  if (cache_.options().n_pages != kUnlimitedPages && n_pages > cache_.n_pages()) {
    if (cache_.kinds().plain()) {
      const uint64_t capacity = uint64_t{cache_.n_pages()} * cache_.options().block_tokens;
      return make_error(ErrorCode::kDoesNotFit,
                        "{} prompt + {} new tokens exceed the cache of {} tokens by {}",
                        prompt_tokens, spec.max_new_tokens, capacity, most - capacity);
    }
    return make_error(ErrorCode::kDoesNotFit,
                      "{} prompt + {} new tokens need {} blocks of {} state groups at once, the "
                      "cache has {}",
                      prompt_tokens, spec.max_new_tokens, n_pages, cache_.kinds().size(),
                      cache_.n_pages());
  }
  if (!(spec.max_tokens_per_s >= 0) || !std::isfinite(spec.max_tokens_per_s)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "a rate of {} tokens per second, expected a finite number, 0 for none",
                      spec.max_tokens_per_s);
  }
  while (!spec.id && requests_.contains(next_id_)) ++next_id_;
  auto request = std::make_unique<Request>();
  request->id = spec.id ? *spec.id : next_id_++;
  request->service_class = spec.service_class;
  request->priority = spec.priority;
  request->client = spec.client;
  request->round = next_round(spec.client, spec.service_class);
  request->arrival = next_arrival_++;
  request->turn = next_turn_++;
  request->deadline_s = spec.deadline_s;
  request->token_s = spec.max_tokens_per_s > 0 ? 1 / spec.max_tokens_per_s : 0;
  request->runs_ahead = spec.runs_ahead;
  request->has_prompt_logits = spec.has_prompt_logits;
  request->forgets_output = spec.forgets_output;
  request->prompt_tokens = static_cast<uint32_t>(prompt_tokens);
  request->sequence_tokens = request->prompt_tokens;
  request->max_new_tokens = spec.max_new_tokens;
  request->times.arrived = now_s;
  request->model = spec.model.value_or(cache_.options().model);
  request->prompt = keyed ? cache_.hash_keys(spec.keys, request->prompt_tokens, spec.salt)
                          : cache_.hash_prompt(spec.prompt, spec.salt, request->model);
  request->salt = std::move(spec.salt);
  if (std::isfinite(request->deadline_s)) deadlines_.emplace(request->deadline_s, request->id);
  if (const auto of = spec.choice_of ? requests_.find(*spec.choice_of) : requests_.end();
      of != requests_.end() && !keyed && of->second->salt == request->salt &&
      of->second->model == request->model &&
      std::ranges::equal(tokens(of->first), request->prompt.content)) {
    request->choice_of = of->second->choice_of.value_or(of->first);
  }
  ++telemetry_.arrived;
  next_due_s_ = 0;
  (waits_for_prompt(*request) ? choices_ : waiting_).insert(request.get());
  const RequestId id = request->id;
  requests_.emplace(id, std::move(request));
  return id;
}

Scheduler Scheduler::in_place_of(const Scheduler& failed) {
  Scheduler scheduler(failed.options_, failed.cache_.options(), failed.cost_);
  PUMICE_CHECK(scheduler.cache_.resize(failed.cache_.n_pages()), "an empty cache takes any size");
  scheduler.telemetry_ = failed.telemetry_;
  scheduler.next_id_ = failed.next_id_;
  scheduler.next_arrival_ = failed.next_arrival_;
  scheduler.rounds_ = failed.rounds_;
  scheduler.next_plan_ = failed.next_plan_;
  return scheduler;
}

void Scheduler::adopt(const Request& request, std::span<const uint32_t> tokens,
                      uint32_t generated_tokens) {
  auto adopted = std::make_unique<Request>();
  adopted->id = request.id;
  adopted->service_class = request.service_class;
  adopted->priority = request.priority;
  adopted->client = request.client;
  adopted->round = request.round;
  adopted->arrival = request.arrival;
  adopted->turn = next_turn_++;
  adopted->deadline_s = request.deadline_s;
  adopted->runs_ahead = request.runs_ahead;
  adopted->has_prompt_logits = request.has_prompt_logits;
  adopted->forgets_output = request.forgets_output;
  adopted->token_s = request.token_s;
  adopted->due_s = request.due_s;
  adopted->prompt_tokens = request.prompt_tokens;
  adopted->max_new_tokens = request.max_new_tokens;
  adopted->generated_tokens = generated_tokens;
  adopted->sequence_tokens = static_cast<uint32_t>(tokens.size());
  adopted->prompt = cache_.hash_prompt(tokens, request.salt, request.model);
  adopted->cache = request.cache;
  adopted->preemptions = request.preemptions;
  adopted->prefill_iterations = request.prefill_iterations;
  adopted->salt = request.salt;
  adopted->model = request.model;
  adopted->times = request.times;
  if (std::isfinite(adopted->deadline_s)) deadlines_.emplace(adopted->deadline_s, adopted->id);
  waiting_.insert(adopted.get());
  requests_.emplace(adopted->id, std::move(adopted));
}

void Scheduler::end(RequestId id, EndReason reason, double now_s) {
  Request& request = *requests_.at(id);
  if (request.ended()) return;
  next_due_s_ = 0;
  if (request.state == RequestState::kPrefilling && reason != EndReason::kLength) {
    telemetry_.cancelled_kv_tokens += request.computed_tokens;
  }
  if (request.running()) {
    const bool ran = request.scheduled_tokens == request.computed_tokens;
    if (request.forgets_output && ran && request.computed_tokens > request.prompt_tokens) {
      (void)cache_.rewind(*request.sequence, request.prompt_tokens);
    }
    cache_.release(*request.sequence);
    stop_running(request);
  } else {
    waiting_.erase(&request);
    choices_.erase(&request);
  }
  request.prompt = {};
  if (request.on_turn) turns_[static_cast<size_t>(request.service_class)] = nullptr;
  deadlines_.erase({request.deadline_s, request.id});
  blocked_.reset();
  ++request.epoch;
  request.end_reason = reason;
  request.times.ended = now_s;
  request.state = reason == EndReason::kCancelled ? RequestState::kCancelled
                  : reason == EndReason::kDeadline || reason == EndReason::kError
                      ? RequestState::kFailed
                      : RequestState::kFinished;
  release_choices();
  if (request.state != RequestState::kFinished) {
    ++(request.state == RequestState::kFailed ? telemetry_.failed : telemetry_.cancelled);
    return;
  }
  ++telemetry_.finished;
  const RequestTimes& times = request.times;
  telemetry_.e2e_seconds.add(now_s - times.arrived);
  if (request.generated_tokens > 1) {
    telemetry_.decode_seconds.add(times.last_token - times.first_token);
    telemetry_.tpot_seconds.add((times.last_token - times.first_token) /
                                (request.generated_tokens - 1));
  }
}

/// The cache has ended its sequence.
void Scheduler::stop_running(Request& request) {
  request.sequence.reset();
  slots_.drop_use(*request.slot);
  request.slot.reset();
  std::erase(running_, &request);
}

void Scheduler::suspend(Request& request) {
  request.prompt = cache_.suspend(*request.sequence);
  stop_running(request);
  request.state = RequestState::kWaiting;
  request.draft_tokens = 0;
  request.computed_tokens = request.scheduled_tokens = request.pending_samples = 0;
  ++request.epoch;
  blocked_.reset();
  waiting_.insert(&request);
}

void Scheduler::preempt(Request& request, StepPlan& plan) {
  suspend(request);
  plan.preempted.push_back(request.id);
  ++request.preemptions;
  ++telemetry_.preemptions;
}

void Scheduler::restart(RequestId id, std::span<const uint32_t> tokens) {
  Request& request = *requests_.at(id);
  PUMICE_CHECK(!request.ended() && !tokens.empty(), "restarting a request that has ended");
  PUMICE_CHECK(options_.window_tokens == 0 || tokens.size() <= options_.window_tokens,
               "restarting with more tokens than the window");
  if (request.running()) {
    suspend(request);
  }
  request.prompt = cache_.hash_prompt(tokens, request.salt, request.model);
  request.sequence_tokens = static_cast<uint32_t>(tokens.size());
  request.most_computed_tokens = 0;
  blocked_.reset();
  next_due_s_ = 0;
}

void Scheduler::remove(RequestId id) {
  const auto it = requests_.find(id);
  PUMICE_CHECK(it != requests_.end() && it->second->ended(),
               "removing a request that has not ended");
  if (!outstanding_.empty()) {
    removed_.emplace_back(outstanding_.back().id, std::move(it->second));
  }
  requests_.erase(it);
}

/// The step is under way no more.
void Scheduler::close(const OpenStep& open) {
  for (const OpenChunk& chunk : open.chunks) slots_.drop_use(chunk.chunk.slot);
  while (!removed_.empty() &&
         (outstanding_.empty() || removed_.front().first < outstanding_.front().id)) {
    removed_.pop_front();
  }
}

const Request& Scheduler::request(RequestId id) const { return *requests_.at(id); }

std::span<const uint32_t> Scheduler::tokens(RequestId id) const {
  const Request& request = *requests_.at(id);
  if (cache_.options().keyed) return {};
  return request.running() ? cache_.tokens(*request.sequence) : request.prompt.content;
}

std::span<const PageId> Scheduler::blocks(RequestId id, uint32_t kind) const {
  return cache_.blocks(*requests_.at(id)->sequence, kind);
}

PageId Scheduler::state(RequestId id, uint32_t kind, uint32_t position) const {
  return cache_.state(*requests_.at(id)->sequence, kind, position);
}

// ---- what ran

void Scheduler::count_token(Request& request, double now_s) {
  RequestTimes& times = request.times;
  if (request.generated_tokens == 1) {
    times.first_token = now_s;
    telemetry_.add_ttft(request.prompt_tokens, now_s - times.arrived);
    telemetry_.prefill_seconds.add(now_s - times.first_scheduled);
    telemetry_.prefill_iterations.add(request.prefill_iterations);
  } else {
    telemetry_.itl_seconds.add(now_s - times.last_token);
  }
  times.last_token = now_s;
  ++telemetry_.generated_tokens;
}

/// Of a chunk that ran: what its rows wrote is there, up to those whose tokens were not taken. A
/// recurrence has its state where the chunk began and where it ended: what lies between is computed
/// again, like a prompt.
void Scheduler::keep_rows(Request& request, const StepChunk& chunk,
                          std::span<const uint32_t> taken) {
  const SequenceId id = *request.sequence;
  const auto n_refused = chunk.n_samples - static_cast<uint32_t>(taken.size());
  const auto go_back = [&](uint32_t n_tokens) {
    const Status rewound = cache_.rewind(id, n_tokens);
    PUMICE_CHECK(rewound.ok(), "nobody can have what no step has committed");
    request.scheduled_tokens = n_tokens;
  };
  if (n_refused > 0 && cache_.kinds().recurrent() != 0) {
    const uint32_t last = cache_.options().keyed ? 0 : cache_.tokens(id).back();
    go_back(chunk.first_position);
    cache_.append(id, std::span(&last, 1));  // it is forgotten with its position
    cache_.append(id, taken);
    return;
  }
  // All that the rows have computed is known when it is committed, so that it can be found.
  const size_t n_computed = taken.empty() ? 0 : taken.size() - 1;
  if (n_computed > 0) cache_.append(id, taken.first(n_computed));
  request.computed_tokens += chunk.n_tokens - n_refused;
  cache_.commit(id, request.computed_tokens);
  if (n_refused > 0) go_back(request.computed_tokens);
  if (!taken.empty()) cache_.append(id, taken.last(1));
}

/// Its first token was sampled: it waits to run, and finds all of its prompt.
void Scheduler::keep_choice(Request& choice, uint32_t token) {
  const auto first = requests_.find(*choice.choice_of);
  if (first != requests_.end() && first->second->running()) {
    cache_.keep_end(*first->second->sequence);
  }
  choices_.erase(&choice);
  waiting_.insert(&choice);
  std::vector<uint32_t> tokens = std::move(choice.prompt.content);
  tokens.push_back(token);
  choice.prompt = cache_.hash_prompt(tokens, choice.salt, choice.model);
  choice.cache = {.prompt_tokens = choice.prompt_tokens,
                  .cached_tokens = choice.prompt_tokens,
                  .shared_tokens = choice.prompt_tokens,
                  .miss = MissReason::kNone};
  telemetry_.cached_tokens += choice.prompt_tokens;
}

void Scheduler::count_tokens(Request& request, size_t n, double now_s) {
  request.draft_tokens = 0;
  if (request.running()) {
    request.state = request.scheduled_tokens < request.sequence_tokens ? RequestState::kPrefilling
                                                                       : RequestState::kDecoding;
  }
  request.sequence_tokens += static_cast<uint32_t>(n);
  for (size_t i = 0; i < n; ++i) {
    ++request.generated_tokens;
    count_token(request, now_s);
  }
  if (request.on_turn && request.turn_ends_s == kNeverS) {
    request.turn_ends_s = now_s + options_.aging_s / 8;
  }
}

void Scheduler::commit_chunk(const OpenChunk& open, std::span<const uint32_t> taken, double now_s,
                             ChunkOutcome& outcome) {
  Request& request = *open.request;
  const StepChunk& chunk = open.chunk;
  outcome.request = chunk.request;
  if (!chunk_counts(open)) {
    telemetry_.discarded_tokens += chunk.n_tokens;
    return;
  }
  PUMICE_CHECK(chunk.shares_row || request.computed_tokens == chunk.first_position,
               "a step committed twice");
  PUMICE_CHECK(taken.size() <= chunk.n_samples && taken.empty() == (chunk.n_samples == 0),
               "of each sampling chunk a token is taken, and no more than it sampled");
  outcome.counts = true;
  outcome.sampled = chunk.n_samples > 0;
  request.pending_samples -= chunk.n_samples;
  if (chunk.shares_row) {
    keep_choice(request, taken[0]);
  } else {
    telemetry_.computed_tokens += chunk.n_tokens;
    keep_rows(request, chunk, taken);
    telemetry_.drafted_tokens += chunk.n_draft();
    telemetry_.accepted_tokens += taken.empty() ? 0 : taken.size() - 1;
  }
  if (request.computed_tokens > request.most_computed_tokens) {
    request.most_computed_tokens = request.computed_tokens;
    unserved_since_s_[static_cast<size_t>(request.service_class)] = now_s;
  }
  if (!chunk.decodes) blocked_.reset();  // waiting requests may share what was read
  if (outcome.sampled) count_tokens(request, taken.size(), now_s);
  const bool exhausted = request.generated_tokens >= request.max_new_tokens;
  if (exhausted && (outcome.sampled || request.computed_tokens == request.sequence_tokens)) {
    end(request.id, EndReason::kLength, now_s);
  } else if (options_.window_tokens != 0 && options_.stop_at_window &&
             request.sequence_tokens > options_.window_tokens) {
    end(request.id, EndReason::kWindow, now_s);
  }
  outcome.ended = request.ended();
}

std::vector<ChunkOutcome> Scheduler::commit(uint64_t plan_id,
                                            std::span<const std::span<const uint32_t>> taken,
                                            double now_s, double seconds) {
  PUMICE_CHECK(!outstanding_.empty() && outstanding_.front().id == plan_id,
               "steps are committed in the order they were planned");
  const OpenStep open = std::move(outstanding_.front());
  outstanding_.pop_front();
  PUMICE_CHECK(taken.size() == open.chunks.size(), "tokens for each chunk, or none");
  std::vector<ChunkOutcome> outcomes(open.chunks.size());
  for (size_t i = 0; i < open.chunks.size(); ++i) {
    commit_chunk(open.chunks[i], taken[i], now_s, outcomes[i]);
  }
  ++telemetry_.steps;
  if (seconds > 0) {
    telemetry_.step_seconds.add(seconds);
    cost_.observe(open.shape, seconds);
  }
  close(open);
  return outcomes;
}

const Scheduler::OpenStep& Scheduler::open_step(uint64_t plan_id) const {
  const auto open = std::ranges::find(outstanding_, plan_id, &OpenStep::id);
  PUMICE_CHECK(open != outstanding_.end(), "a step that is not under way");
  return *open;
}

bool Scheduler::chunk_counts(const OpenChunk& chunk) {
  return chunk.request->epoch == chunk.epoch && !chunk.request->ended();
}

bool Scheduler::counts(uint64_t plan_id) const {
  return std::ranges::all_of(open_step(plan_id).chunks, chunk_counts);
}

bool Scheduler::counts_in_part(uint64_t plan_id) const {
  return std::ranges::any_of(open_step(plan_id).chunks, chunk_counts);
}

bool Scheduler::counts(uint64_t plan_id, size_t chunk) const {
  return chunk_counts(open_step(plan_id).chunks[chunk]);
}

void Scheduler::rollback(uint64_t plan_id) {
  while (!outstanding_.empty() && outstanding_.back().id >= plan_id) {
    const OpenStep open = std::move(outstanding_.back());
    outstanding_.pop_back();
    ++telemetry_.failed_steps;
    for (auto it = open.chunks.rbegin(); it != open.chunks.rend(); ++it) {
      Request& request = *it->request;
      if (request.epoch != it->epoch || request.ended()) continue;
      request.pending_samples -= it->chunk.n_samples;
      if (it->chunk.shares_row) continue;
      request.scheduled_tokens = it->chunk.first_position;
      request.due_s = it->due_s;
      request.turn = it->turn;
      if (!it->chunk.decodes) --request.prefill_iterations;
      cache_.unplan(*request.sequence, request.scheduled_tokens);
      // A prompt's pages were taken when it started or are its next chunk's, a decoding row's with
      // the row.
      if (it->chunk.decodes) cache_.shrink(*request.sequence, request.scheduled_tokens);
    }
    for (const auto& [request, epoch] : open.started) {
      if (request->epoch == epoch && request->running()) suspend(*request);
    }
    close(open);
  }
  release_choices();
}

void Scheduler::lose_device() {
  if (!outstanding_.empty()) rollback(outstanding_.front().id);
  while (!running_.empty()) suspend(*running_.back());
  cache_.forget_device();
}

void Scheduler::give_up_pages(uint32_t n_pages) {
  PUMICE_CHECK(outstanding_.empty(), "pages are given up under a step");
  StepPlan nothing;
  while (!cache_.give_up(n_pages)) {
    PUMICE_CHECK(!running_.empty(), "blocks are in use and no request runs");
    preempt(*running_.back(), nothing);
  }
}

// ---- the whole

nlohmann::json Scheduler::profile_json() const {
  const uint32_t block_tokens = cache_.options().block_tokens;
  StepShape prefill;
  prefill.add_prefill(0, options_.chunk_tokens);
  const auto rate = [&](const StepShape& shape, uint32_t tokens) -> nlohmann::json {
    const double seconds = cost_.predict(shape);
    return cost_.calibrated() && seconds > 0 ? nlohmann::json(tokens / seconds) : nullptr;
  };
  return {{"block_tokens", block_tokens},
          {"blocks", cache_.n_pages()},
          {"token_budget", options_.token_budget},
          {"chunk_tokens",
           {{"min", options_.tpot_target_s > 0 ? std::min(block_tokens, options_.chunk_tokens)
                                               : options_.chunk_tokens},
            {"max", options_.chunk_tokens}}},
          {"tpot_target_s", options_.tpot_target_s},
          {"max_running", options_.max_running},
          {"window_tokens", options_.window_tokens},
          {"calibrated", cost_.calibrated()},
          {"cost", cost_.cost()},
          {"prefill_tokens_per_s", rate(prefill, options_.chunk_tokens)},
          {"decode_tokens_per_s_one_stream", rate({.decode_rows = 1}, 1)},
          {"decode_tokens_per_s_all_streams",
           rate({.decode_rows = options_.max_running}, options_.max_running)}};
}

}  // namespace pumice
