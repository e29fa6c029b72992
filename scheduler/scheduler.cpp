#include "scheduler/scheduler.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

namespace pumice {

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
  constexpr std::string_view kNames[] = {"none",   "length",    "stop",     "stop_string",
                                         "window", "cancelled", "deadline", "error"};
  return kNames[static_cast<size_t>(reason)];
}

uint32_t StepPlan::n_tokens() const {
  uint32_t total = 0;
  for (const StepChunk& chunk : chunks) total += chunk.n_tokens;
  return total;
}

Result<Scheduler> Scheduler::create(const SchedulerOptions& options, KvCacheOptions cache,
                                    const CostModel& cost) {
  if (options.token_budget < cache.block_tokens) {
    return make_error(ErrorCode::kInvalidArgument,
                      "a token budget of {} is below one block of {} tokens; raise -b",
                      options.token_budget, cache.block_tokens);
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
  PUMICE_TRY_STATUS(CacheGroups::check(cache.groups));
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
  const uint64_t n_pages = cache_.groups().pages_for(most, 1);
  if (cache_.options().n_blocks != kUnlimitedBlocks && n_pages > cache_.n_blocks()) {
    if (cache_.groups().plain()) {
      const uint64_t capacity = uint64_t{cache_.n_blocks()} * cache_.options().block_tokens;
      return make_error(ErrorCode::kDoesNotFit,
                        "{} prompt + {} new tokens exceed the cache of {} tokens by {}",
                        prompt_tokens, spec.max_new_tokens, capacity, most - capacity);
    }
    return make_error(ErrorCode::kDoesNotFit,
                      "{} prompt + {} new tokens need {} blocks of {} state groups at once, the "
                      "cache has {}",
                      prompt_tokens, spec.max_new_tokens, n_pages, cache_.groups().size(),
                      cache_.n_blocks());
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
  request->arrival = next_arrival_++;
  request->deadline_s = spec.deadline_s;
  request->token_s = spec.max_tokens_per_s > 0 ? 1 / spec.max_tokens_per_s : 0;
  request->runs_ahead = spec.runs_ahead;
  request->prompt_tokens = static_cast<uint32_t>(prompt_tokens);
  request->sequence_tokens = request->prompt_tokens;
  request->max_new_tokens = spec.max_new_tokens;
  request->times.arrived = now_s;
  request->prompt = keyed ? cache_.hash_keys(spec.keys, request->prompt_tokens, spec.salt)
                          : cache_.hash_prompt(spec.prompt, spec.salt);
  request->salt = std::move(spec.salt);
  if (std::isfinite(request->deadline_s)) deadlines_.emplace(request->deadline_s, request->id);
  ++telemetry_.arrived;
  next_due_s_ = 0;
  waiting_.insert(request.get());
  const RequestId id = request->id;
  requests_.emplace(id, std::move(request));
  return id;
}

Result<Scheduler> Scheduler::in_place_of(const Scheduler& failed) {
  PUMICE_TRY(Scheduler scheduler, create(failed.options_, failed.cache_.options(), failed.cost_));
  PUMICE_CHECK(scheduler.cache_.resize(failed.cache_.n_blocks()), "an empty cache takes any size");
  scheduler.telemetry_ = failed.telemetry_;
  scheduler.next_id_ = failed.next_id_;
  scheduler.next_arrival_ = failed.next_arrival_;
  scheduler.next_plan_ = failed.next_plan_;
  return scheduler;
}

void Scheduler::adopt(const Request& request, std::span<const uint32_t> tokens,
                      uint32_t generated_tokens) {
  auto adopted = std::make_unique<Request>();
  adopted->id = request.id;
  adopted->service_class = request.service_class;
  adopted->priority = request.priority;
  adopted->arrival = request.arrival;
  adopted->deadline_s = request.deadline_s;
  adopted->runs_ahead = request.runs_ahead;
  adopted->token_s = request.token_s;
  adopted->due_s = request.due_s;
  adopted->prompt_tokens = request.prompt_tokens;
  adopted->max_new_tokens = request.max_new_tokens;
  adopted->generated_tokens = generated_tokens;
  adopted->sequence_tokens = static_cast<uint32_t>(tokens.size());
  adopted->prompt = cache_.hash_prompt(tokens, request.salt);
  adopted->cache = request.cache;
  adopted->preemptions = request.preemptions;
  adopted->prefill_iterations = request.prefill_iterations;
  adopted->salt = request.salt;
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
    cache_.release(*request.sequence);
    stop_running(request);
  } else {
    waiting_.erase(&request);
  }
  request.prompt = {};
  deadlines_.erase({request.deadline_s, request.id});
  blocked_.reset();
  ++request.epoch;
  request.end_reason = reason;
  request.times.ended = now_s;
  switch (reason) {
    case EndReason::kCancelled:
      request.state = RequestState::kCancelled;
      ++telemetry_.cancelled;
      return;
    case EndReason::kDeadline:
    case EndReason::kError:
      request.state = RequestState::kFailed;
      ++telemetry_.failed;
      return;
    default:
      break;
  }
  request.state = RequestState::kFinished;
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
  request.prompt = cache_.hash_prompt(tokens, request.salt);
  request.sequence_tokens = static_cast<uint32_t>(tokens.size());
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

std::span<const BlockId> Scheduler::blocks(RequestId id, uint32_t group) const {
  return cache_.blocks(*requests_.at(id)->sequence, group);
}

BlockId Scheduler::state(RequestId id, uint32_t group, uint32_t position) const {
  return cache_.state(*requests_.at(id)->sequence, group, position);
}

// ---- planning

bool Scheduler::can_decode(const Request& request) const {
  if (!request.running() || request.known_tokens() != request.scheduled_tokens + 1) return false;
  if (request.generated_tokens == 0 && request.pending_samples == 0) return false;  // a prompt
  if (request.pending_samples > 0 && !request.runs_ahead) return false;
  if (request.generated_tokens + request.pending_samples >= request.max_new_tokens) return false;
  return options_.window_tokens == 0 || request.scheduled_tokens < options_.window_tokens;
}

bool Scheduler::reads_prompt(const Request& request) const {
  return request.state == RequestState::kPrefilling &&
         request.scheduled_tokens < request.sequence_tokens && !can_decode(request);
}

Request* Scheduler::worst_unplanned(const Request* spare) const {
  for (auto it = running_.rbegin(); it != running_.rend(); ++it) {
    if (*it != spare && (*it)->last_planned != next_plan_) return *it;
  }
  return nullptr;
}

/// Blocks for positions up to `end`, if need be taken from whoever is served after it.
bool Scheduler::make_room(Request& request, uint32_t end, StepPlan& plan) {
  while (true) {
    if (cache_.reserve(*request.sequence, end).ok()) return true;
    Request* victim = worst_unplanned(&request);
    if (victim == nullptr || ServedBefore{}(victim, &request)) return false;
    preempt(*victim, plan);
  }
}

void Scheduler::add_chunk(Request& request, uint32_t n_tokens, bool decodes, double now_s,
                          StepPlan& plan, OpenStep& open) {
  const uint32_t first = request.scheduled_tokens;
  const uint32_t end = first + n_tokens;
  const bool samples = end == request.known_tokens() &&
                       request.generated_tokens + request.pending_samples < request.max_new_tokens;
  const StepChunk chunk{request.id, *request.slot, first, n_tokens, samples, decodes};
  slots_.add_use(chunk.slot);
  plan.chunks.push_back(chunk);
  open.chunks.push_back({&request, request.epoch, request.due_s, chunk});
  // One token's time may be made up for, as who polls is late as often as not.
  if (samples) request.due_s = std::max(request.due_s, now_s - request.token_s) + request.token_s;
  if (decodes) {
    plan.shape.add_decode(first);
  } else {
    plan.shape.add_prefill(first, n_tokens);
    ++request.prefill_iterations;
    telemetry_.chunk_tokens.add(n_tokens);
  }
  cache_.plan(*request.sequence, end);
  request.scheduled_tokens = end;
  request.pending_samples += samples ? 1 : 0;
  request.last_planned = next_plan_;
}

void Scheduler::plan_decodes(StepPlan& plan, OpenStep& open, double now_s) {
  std::vector<Request*> rows;
  rows.reserve(running_.size());
  for (Request* request : running_) {
    if (can_decode(*request) && request->due_s <= now_s) rows.push_back(request);
  }
  // What other classes are sure of is left for them, if they have anything to do.
  std::array<uint32_t, kServiceClasses> reserved = {};
  const auto reserve_for = [&](const Request& request) {
    const auto index = static_cast<size_t>(request.service_class);
    reserved[index] = options_.reserved_decode_tokens[index];
  };
  if (!waiting_.empty()) reserve_for(**waiting_.begin());
  for (const Request* request : running_) reserve_for(*request);
  uint32_t left = options_.token_budget;
  for (Request* request : rows) {
    uint32_t& own = reserved[static_cast<size_t>(request->service_class)];
    const uint32_t others = std::accumulate(reserved.begin(), reserved.end(), 0u) - own;
    if (left <= others || !can_decode(*request) ||
        !make_room(*request, request->scheduled_tokens + 1, plan)) {
      continue;
    }
    add_chunk(*request, 1, true, now_s, plan, open);
    --left;
    own -= own > 0 ? 1 : 0;
  }
}

/// How far the next chunk of a prompt goes: as the budget and the objective allow, to a block's
/// edge if that is progress.
uint32_t Scheduler::prefill_tokens(const Request& request, const StepPlan& plan) {
  const uint32_t block_tokens = cache_.options().block_tokens;
  const uint32_t first = request.scheduled_tokens;
  const uint32_t left = request.sequence_tokens - first;
  const uint32_t used = plan.n_tokens();
  uint32_t most = std::min({left, options_.chunk_tokens, options_.token_budget - used});
  if (most == 0) return 0;
  if (options_.tpot_target_s > 0 && plan.shape.decode_rows > 0) {
    const uint32_t smallest = std::min(most, block_tokens - first % block_tokens);
    uint32_t within = cost_.calibrated()
                          ? cost_.tokens_within(options_.tpot_target_s, plan.shape, first, most)
                          : smallest;
    if (within < smallest) {
      // Prompts must get on: the first takes the smallest chunk all the same.
      if (plan.shape.prefill_tokens > 0) return 0;
      ++telemetry_.target_misses;
      within = smallest;
    }
    most = within;
  }
  // A state is kept where a chunk ends.
  const uint32_t kept = cache_.next_kept_state(*request.sequence, first);
  if (kept - first < most) return kept - first;
  if (most == left) return most;
  const uint32_t end = first + most;
  const uint32_t on_edge = end - end % block_tokens;
  return on_edge > first ? on_edge - first : most;
}

/// False: nothing is left of the budget.
bool Scheduler::plan_prefill(Request& request, StepPlan& plan, OpenStep& open, double now_s) {
  uint32_t n_tokens = prefill_tokens(request, plan);
  if (n_tokens == 0) return false;
  const uint32_t first = request.scheduled_tokens;
  if (!cache_.reserve(*request.sequence, first + n_tokens).ok()) {
    // As far as it has blocks; where it has none, hold_room sees to it when its turn comes.
    const uint32_t end = cache_.reserved_tokens(*request.sequence);
    n_tokens = std::min(n_tokens, std::max(end, first) - first);
    if (n_tokens == 0) return true;
  }
  add_chunk(request, n_tokens, false, now_s, plan, open);
  return true;
}

/// Windows and states are taken while a prompt is read. A prompt whose earlier steps have landed,
/// and so gave back what they will, gets room for its next block before rows that are served after
/// it go on: they might keep what it needs for as long as they run.
void Scheduler::hold_room(StepPlan& plan) {
  if (cache_.groups().windows() == 0 && cache_.groups().recurrent() == 0) return;
  const uint32_t block_tokens = cache_.options().block_tokens;
  for (Request* request : std::vector<Request*>(running_)) {
    if (!request->running() || !reads_prompt(*request)) continue;
    if (request->scheduled_tokens != request->computed_tokens) continue;
    const uint32_t next_edge = (request->scheduled_tokens / block_tokens + 1) * block_tokens;
    (void)make_room(*request, std::min(next_edge, request->sequence_tokens), plan);
  }
}

/// Start the request at the head of the queue, if it fits.
bool Scheduler::admit(StepPlan& plan, OpenStep& open, double now_s) {
  if (waiting_.empty()) return false;
  Request& request = **waiting_.begin();
  const auto yields = [&]() -> Request* {  // someone of a lesser class who could make room
    Request* worst = worst_unplanned(nullptr);
    return worst != nullptr && worst->service_class > request.service_class ? worst : nullptr;
  };
  const uint32_t free_blocks = cache_.n_free_blocks();
  if (blocked_ && blocked_->first == request.id && free_blocks <= blocked_->second &&
      yields() == nullptr) {
    return false;
  }
  while (running_.size() >= options_.max_running) {
    Request* victim = yields();
    if (victim == nullptr) return false;
    preempt(*victim, plan);
  }
  while (true) {
    // Each running request is left a block to grow into, or they would soon take these back.
    const CacheGroups& groups = cache_.groups();
    const uint64_t shared =
        cache_.look_up(request.prompt).shared_tokens / cache_.options().block_tokens;
    const uint64_t needed = groups.pages_for(request.sequence_tokens, options_.chunk_tokens) -
                            shared * static_cast<uint64_t>(std::popcount(groups.full())) +
                            running_.size() * static_cast<uint64_t>(std::popcount(groups.paged()));
    if (running_.empty() || cache_.n_free_blocks() >= needed) {
      Result<SequenceId> sequence = cache_.begin(request.prompt, request.sequence_tokens);
      if (sequence.ok()) {
        request.sequence = *sequence;
        break;
      }
    }
    Request* victim = yields();
    if (victim == nullptr) {
      blocked_ = {request.id, cache_.n_free_blocks()};
      return false;
    }
    preempt(*victim, plan);
  }
  blocked_.reset();
  request.slot = slots_.take();
  waiting_.erase(waiting_.begin());
  const CacheReport& report = cache_.report(*request.sequence);
  request.computed_tokens = request.scheduled_tokens = report.cached_tokens;
  request.state = RequestState::kPrefilling;
  running_.insert(std::ranges::upper_bound(running_, &request, ServedBefore{}), &request);
  open.started.emplace_back(&request, request.epoch);
  plan.started.push_back(request.id);
  if (std::isnan(request.times.first_scheduled)) {
    request.times.first_scheduled = now_s;
    telemetry_.wait_seconds.add(now_s - request.times.arrived);
    telemetry_.prompt_tokens += request.prompt_tokens;
  }
  if (request.prefill_iterations == 0) {  // an earlier start was rolled back and reused nothing
    telemetry_.cached_tokens -= request.cache.cached_tokens;
    telemetry_.cached_tokens += report.cached_tokens;
    request.cache = report;
  }
  return true;
}

void Scheduler::plan_prefills(StepPlan& plan, OpenStep& open, double now_s) {
  std::vector<Request*> partial;
  for (Request* request : running_) {
    if (reads_prompt(*request)) partial.push_back(request);
  }
  // Those of equal rank take turns.
  std::ranges::stable_sort(partial, [](const Request* a, const Request* b) {
    return std::tuple(a->service_class, a->priority, a->last_planned) <
           std::tuple(b->service_class, b->priority, b->last_planned);
  });
  size_t n_partial = partial.size();
  const auto plan_one = [&](Request& request) {
    if (!plan_prefill(request, plan, open, now_s)) return false;
    if (!reads_prompt(request)) --n_partial;
    return true;
  };
  // A request of a better class does not wait behind partly read prompts.
  const auto next_goes_first = [&] {
    return !waiting_.empty() && !partial.empty() &&
           (*waiting_.begin())->service_class < partial.front()->service_class;
  };
  while (plan.n_tokens() < options_.token_budget && next_goes_first()) {
    Request* next = *waiting_.begin();
    if (!admit(plan, open, now_s)) break;
    ++n_partial;
    if (!plan_one(*next)) break;
  }
  for (Request* request : partial) {
    if (!request->running() || !reads_prompt(*request)) continue;  // preempted just now
    if (!plan_one(*request)) break;
  }
  while (plan.n_tokens() < options_.token_budget && n_partial < options_.max_partial_prefills &&
         !waiting_.empty()) {
    // Do not take blocks for a request that gets no tokens in this step.
    if (options_.tpot_target_s > 0 && plan.shape.decode_rows > 0 && plan.shape.prefill_tokens > 0 &&
        cost_.tokens_within(options_.tpot_target_s, plan.shape, 0, 1) == 0) {
      break;
    }
    Request* next = *waiting_.begin();
    if (!admit(plan, open, now_s)) break;
    ++n_partial;
    if (!plan_one(*next)) break;
  }
}

void Scheduler::fail(Request& request, Error why, StepPlan& plan, double now_s) {
  request.failure = std::move(why);
  end(request.id, EndReason::kError, now_s);
  plan.ended.push_back(request.id);
}

/// The cache has got fewer blocks than these need alone: they would wait for ever, and take
/// others' blocks for nothing.
void Scheduler::fail_unfitting(StepPlan& plan, double now_s) {
  if (cache_.n_blocks() >= cache_.options().n_blocks || cache_.pool().unlimited()) return;
  std::vector<Request*> all(running_);
  all.insert(all.end(), waiting_.begin(), waiting_.end());
  for (Request* request : all) {
    const uint64_t n_needed = cache_.groups().pages_for(request->sequence_tokens, 1);
    if (n_needed <= cache_.n_blocks()) continue;
    fail(*request,
         make_error(ErrorCode::kDoesNotFit,
                    "{} tokens need {} KV blocks, and the cache was made smaller: it has {} of {}",
                    request->sequence_tokens, n_needed, cache_.n_blocks(),
                    cache_.options().n_blocks),
         plan, now_s);
  }
}

/// Nothing can be planned and nothing is under way. Only pinned blocks can bring this about, since
/// without them there is room for any one request: fail the first.
void Scheduler::fail_stuck(StepPlan& plan, double now_s) {
  // Who waits for a time is not stuck, nor who waits for the blocks of one who does.
  if (std::isfinite(first_due_s(now_s))) return;
  const auto stuck = std::ranges::find_if(running_, [&](const Request* request) {
    return can_decode(*request) || reads_prompt(*request);
  });
  if (stuck == running_.end() && (waiting_.empty() || !running_.empty())) return;
  Request& request = stuck != running_.end() ? **stuck : **waiting_.begin();
  fail(request,
       make_error(ErrorCode::kDoesNotFit, "{} tokens do not fit: {} of {} KV blocks are free",
                  request.sequence_tokens, cache_.n_free_blocks(), cache_.n_blocks()),
       plan, now_s);
}

/// When the first of the requests whose next row must wait may have it; infinite if there is none.
double Scheduler::first_due_s(double now_s) const {
  double first = std::numeric_limits<double>::infinity();
  for (const Request* request : running_) {
    if (can_decode(*request) && request->due_s > now_s) first = std::min(first, request->due_s);
  }
  return first;
}

void Scheduler::expire(StepPlan& plan, double now_s) {
  while (!deadlines_.empty() && deadlines_.begin()->first < now_s) {
    const RequestId id = deadlines_.begin()->second;
    end(id, EndReason::kDeadline, now_s);
    plan.ended.push_back(id);
  }
}

StepPlan Scheduler::plan_step(double now_s) {
  PUMICE_CHECK(outstanding_.size() < kMaxOutstanding, "too many steps under way");
  StepPlan plan;
  OpenStep open;
  plan.id = open.id = next_plan_;
  expire(plan, now_s);
  fail_unfitting(plan, now_s);
  hold_room(plan);
  plan_decodes(plan, open, now_s);
  plan_prefills(plan, open, now_s);
  if (plan.chunks.empty() && outstanding_.empty()) fail_stuck(plan, now_s);
  plan.transfers = cache_.take_transfers();
  next_due_s_ = 0;
  if (plan.empty()) {
    PUMICE_CHECK(plan.started.empty(), "a plan without work started a request");
    if (plan.ended.empty()) next_due_s_ = first_due_s(now_s);
    if (!deadlines_.empty()) next_due_s_ = std::min(next_due_s_, deadlines_.begin()->first);
    return plan;
  }
  open.shape = plan.shape;
  plan.predicted_s = cost_.predict(plan.shape);
  ++next_plan_;
  outstanding_.push_back(std::move(open));
  return plan;
}

bool Scheduler::finish_transfers(const StepPlan& plan, const TransferFailures& failures) {
  const std::vector<SequenceId> lost = cache_.finish_transfers(plan.transfers.batch, failures);
  if (lost.empty()) return true;
  // Only requests that this plan started can be among them, and rolling it back suspends those.
  rollback(plan.id);
  return false;
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

bool Scheduler::commit_chunk(const OpenChunk& open, uint32_t token, double now_s,
                             ChunkOutcome& outcome) {
  Request& request = *open.request;
  const StepChunk& chunk = open.chunk;
  outcome.request = chunk.request;
  if (request.epoch != open.epoch || request.ended()) {
    telemetry_.discarded_tokens += chunk.n_tokens;
    return false;
  }
  PUMICE_CHECK(request.computed_tokens == chunk.first_position, "a step committed twice");
  outcome.counts = true;
  request.computed_tokens += chunk.n_tokens;
  telemetry_.computed_tokens += chunk.n_tokens;
  cache_.commit(*request.sequence, request.computed_tokens);
  if (!chunk.decodes) blocked_.reset();  // who waits may share what was read
  if (chunk.samples) {
    outcome.sampled = true;
    --request.pending_samples;
    ++request.generated_tokens;
    ++request.sequence_tokens;
    request.state = RequestState::kDecoding;
    cache_.append(*request.sequence, std::span(&token, 1));
    count_token(request, now_s);
  }
  const bool exhausted = request.generated_tokens >= request.max_new_tokens;
  if (exhausted && (chunk.samples || request.computed_tokens == request.sequence_tokens)) {
    end(request.id, EndReason::kLength, now_s);
  } else if (options_.window_tokens != 0 && options_.stop_at_window &&
             request.sequence_tokens > options_.window_tokens) {
    end(request.id, EndReason::kWindow, now_s);
  }
  outcome.ended = request.ended();
  return true;
}

std::vector<ChunkOutcome> Scheduler::commit(uint64_t plan_id, std::span<const uint32_t> sampled,
                                            double now_s, double seconds) {
  PUMICE_CHECK(!outstanding_.empty() && outstanding_.front().id == plan_id,
               "steps are committed in the order they were planned");
  const OpenStep open = std::move(outstanding_.front());
  outstanding_.pop_front();
  std::vector<ChunkOutcome> outcomes(open.chunks.size());
  size_t n_sampled = 0;
  for (size_t i = 0; i < open.chunks.size(); ++i) {
    uint32_t token = 0;
    if (open.chunks[i].chunk.samples) {
      PUMICE_CHECK(n_sampled < sampled.size(), "a token for each sampling chunk");
      token = sampled[n_sampled++];
    }
    commit_chunk(open.chunks[i], token, now_s, outcomes[i]);
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

void Scheduler::rollback(uint64_t plan_id) {
  while (!outstanding_.empty() && outstanding_.back().id >= plan_id) {
    const OpenStep open = std::move(outstanding_.back());
    outstanding_.pop_back();
    ++telemetry_.failed_steps;
    for (auto it = open.chunks.rbegin(); it != open.chunks.rend(); ++it) {
      Request& request = *it->request;
      if (request.epoch != it->epoch || request.ended()) continue;
      request.scheduled_tokens = it->chunk.first_position;
      request.due_s = it->due_s;
      request.pending_samples -= it->chunk.samples ? 1 : 0;
      if (!it->chunk.decodes) --request.prefill_iterations;
      cache_.unplan(*request.sequence, request.scheduled_tokens);
      // A prompt's blocks were taken when it started or are its next chunk's, a decoding row's with
      // the row.
      if (it->chunk.decodes) cache_.shrink(*request.sequence, request.scheduled_tokens);
    }
    for (const auto& [request, epoch] : open.started) {
      if (request->epoch == epoch && request->running()) suspend(*request);
    }
    close(open);
  }
}

void Scheduler::lose_device() {
  if (!outstanding_.empty()) rollback(outstanding_.front().id);
  while (!running_.empty()) suspend(*running_.back());
  cache_.forget_device();
}

void Scheduler::give_up_blocks(uint32_t n_blocks) {
  PUMICE_CHECK(outstanding_.empty(), "blocks are given up under a step");
  StepPlan nothing;
  while (!cache_.give_up(n_blocks)) {
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
          {"blocks", cache_.n_blocks()},
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
