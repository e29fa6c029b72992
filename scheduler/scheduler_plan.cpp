// Scheduler: what goes into a step.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "scheduler/scheduler.hpp"

namespace pumice {

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

}  // namespace pumice
