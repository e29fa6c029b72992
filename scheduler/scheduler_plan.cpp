// Scheduler: what goes into a step.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "scheduler/scheduler.hpp"

namespace pumice {

/// Its prompt is read, and more is to come.
bool Scheduler::wants_token(const Request& request) const {
  if (!request.running() || request.known_tokens() != request.scheduled_tokens + 1) return false;
  if (request.generated_tokens == 0 && request.pending_samples == 0) return false;  // a prompt
  if (request.generated_tokens + request.pending_samples >= request.max_new_tokens) return false;
  return options_.window_tokens == 0 || request.scheduled_tokens < options_.window_tokens;
}

bool Scheduler::can_decode(const Request& request) const {
  if (request.pending_samples > 0 && !request.runs_ahead) return false;
  if (request.pending_samples > 1)
    return false;  // a draft: which of its tokens follow is not known
  return wants_token(request);
}

bool Scheduler::reads_prompt(const Request& request) const {
  return request.state == RequestState::kPrefilling &&
         request.scheduled_tokens < request.sequence_tokens && !can_decode(request);
}

/// A start brings a chunk at once, even if that is only a row's: or a plan could start somebody and
/// be empty.
bool Scheduler::wants_chunk(const Request& request) const {
  return reads_prompt(request) || request.started_in == next_plan_;
}

/// Pages for positions up to `end`, taken from requests served after it if need be.
bool Scheduler::make_room(Request& request, uint32_t end, StepPlan& plan) {
  while (true) {
    if (cache_.reserve(*request.sequence, end).ok()) return true;
    Request* victim = worst_unplanned(&request);
    if (victim == nullptr || ServedBefore{}(victim, &request)) return false;
    preempt(*victim, plan);
  }
}

uint32_t Scheduler::most_draft(RequestId id) const {
  const Request& request = *requests_.at(id);
  // A request with a slow rate has no use for many tokens at once.
  if (request.pending_samples > 0 || request.token_s > 0 || !wants_token(request)) return 0;
  uint32_t most =
      std::min(most_draft_of_any(), request.max_new_tokens - request.generated_tokens - 1);
  if (options_.window_tokens != 0) {
    most = std::min(most, options_.window_tokens - request.scheduled_tokens - 1);
  }
  return most;
}

void Scheduler::draft(RequestId id, uint32_t n_tokens) {
  requests_.at(id)->draft_tokens = std::min(n_tokens, most_draft(id));
}

/// Rows of its draft that the next row of a request may have behind it, which has its own pages.
uint32_t Scheduler::draft_rows(const Request& request, uint32_t most) {
  const uint32_t n_rows = std::min({request.draft_tokens, most, most_draft(request.id)});
  if (n_rows == 0) return 0;
  const uint32_t first = request.scheduled_tokens + 1;
  if (cache_.reserve(*request.sequence, first + n_rows).ok()) return n_rows;
  return std::min(n_rows, cache_.reserved_tokens(*request.sequence) - first);
}

void Scheduler::add_chunk(Request& request, uint32_t n_tokens, bool decodes, double now_s,
                          StepPlan& plan, OpenStep& open) {
  const uint32_t first = request.scheduled_tokens;
  const uint32_t end = first + n_tokens;
  const bool samples = end == request.known_tokens() &&
                       request.generated_tokens + request.pending_samples < request.max_new_tokens;
  const uint32_t n_samples = decodes ? n_tokens : samples ? 1 : 0;
  const bool ends_prompt = samples && request.generated_tokens + request.pending_samples == 0;
  const StepChunk chunk{request.id, *request.slot, first, n_tokens, n_samples, decodes};
  // Of prompts that are equals the first in a step has its turn; what it leaves of the budget may
  // be next to nothing, and costs the others none.
  const bool is_next = !decodes && !open.chunks.empty() && !open.chunks.back().chunk.decodes &&
                       equals(open.chunks.back().request) == equals(&request);
  slots_.add_use(chunk.slot);
  plan.chunks.push_back(chunk);
  open.chunks.push_back({&request, request.epoch, request.due_s, request.turn, chunk});
  // One token's time may be made up for, since polls come late as often as not.
  if (n_samples > 0)
    request.due_s = std::max(request.due_s, now_s - request.token_s) + request.token_s;
  if (decodes) {
    for (uint32_t i = 0; i < n_tokens; ++i) plan.shape.add_decode(first + i);
    open.spare_logit_rows -= n_tokens - 1;
  } else {
    plan.shape.add_prefill(first, n_tokens);
    ++request.prefill_iterations;
    if (request.has_prompt_logits) open.spare_logit_rows -= n_tokens - 1;
    telemetry_.chunk_tokens.add(n_tokens);
  }
  cache_.plan(*request.sequence, end);
  request.scheduled_tokens = end;
  request.pending_samples += n_samples;
  request.last_planned = next_plan_;
  if (!is_next) request.turn = next_turn_++;
  if (ends_prompt) add_choices(request, now_s, plan, open);
}

/// Those for which there are places sample the last row too; the others begin by themselves.
void Scheduler::add_choices(const Request& first, double now_s, StepPlan& plan, OpenStep& open) {
  for (Request* choice : choices_) {
    if (running_.size() + open.n_choices >= options_.max_running) break;
    if (choice->choice_of != first.id || choice->max_new_tokens == 0) continue;
    const StepChunk chunk{choice->id, slots_.take(), first.scheduled_tokens - 1, 1, 1, false, true};
    plan.chunks.push_back(chunk);
    open.chunks.push_back({choice, choice->epoch, choice->due_s, choice->turn, chunk});
    ++open.n_choices;
    choice->pending_samples = 1;
    has_been_scheduled(*choice, now_s);
  }
  release_choices();
}

bool Scheduler::waits_for_prompt(const Request& choice) const {
  const auto first = choice.choice_of ? requests_.find(*choice.choice_of) : requests_.end();
  return first != requests_.end() && !first->second->ended() &&
         first->second->generated_tokens + first->second->pending_samples == 0;
}

/// Those for which nobody reads the prompt any more wait like all others.
void Scheduler::release_choices() {
  for (auto it = choices_.begin(); it != choices_.end();) {
    Request* const choice = *it;
    const bool stays = choice->pending_samples > 0 || waits_for_prompt(*choice);
    it = stays ? std::next(it) : choices_.erase(it);
    if (!stays) waiting_.insert(choice);
  }
}

/// The prompt that goes first: partly read, or of the first that waits, if there is a place and it
/// is not known that it does not fit.
const Request* Scheduler::first_prompt() const {
  const Request* first = nullptr;
  const auto consider = [&](const Request* request) {
    if (first == nullptr || TurnBefore{}(request, first)) first = request;
  };
  for (const Request* request : running_) {
    if (wants_chunk(*request)) consider(request);
  }
  if (!waiting_.empty() && running_.size() < options_.max_running) {
    const Request* head = *waiting_.begin();
    if (!blocked_ || blocked_->first != head->id) consider(head);
  }
  return first;
}

/// What a row leaves of the budget to that prompt.
uint32_t Scheduler::left_to(const Request& prompt, const Request& row) const {
  const auto class_of = [](const Request& request) {
    return std::tuple(!request.on_turn, request.service_class);
  };
  if (class_of(prompt) < class_of(row)) {
    return std::min(cache_.options().block_tokens,
                    prompt.sequence_tokens - prompt.scheduled_tokens);
  }
  return TurnBefore{}(&prompt, &row) ? 1 : 0;
}

void Scheduler::plan_decodes(StepPlan& plan, OpenStep& open, double now_s) {
  std::vector<Request*> rows;
  rows.reserve(running_.size());
  // What other classes are sure of is left for them, if they have anything to do.
  std::array<uint32_t, kServiceClasses> reserved = {};
  const auto reserve_for = [&](const Request& request) {
    const auto index = static_cast<size_t>(request.service_class);
    reserved[index] = options_.reserved_decode_tokens[index];
  };
  if (!waiting_.empty()) reserve_for(**waiting_.begin());
  for (Request* request : running_) {
    reserve_for(*request);
    const bool due = request->due_s <= now_s && request->started_in != next_plan_;
    if (due && can_decode(*request)) rows.push_back(request);
  }
  const size_t n_wanted = rows.size() +
                          std::accumulate(reserved.begin(), reserved.end(), size_t{0}) +
                          cache_.options().block_tokens;
  if (n_wanted > options_.token_budget) std::ranges::sort(rows, TurnBefore{});
  const Request* prompt = first_prompt();
  uint32_t left = options_.token_budget;
  for (size_t row = 0; row < rows.size(); ++row) {
    Request* request = rows[row];
    const auto own = static_cast<size_t>(request->service_class);
    uint32_t to_others = 0;
    for (size_t i = 0; i < kServiceClasses; ++i) {
      uint32_t to_class = i == own ? 0 : reserved[i];
      if (prompt != nullptr && i == static_cast<size_t>(prompt->service_class)) {
        to_class = std::max(to_class, left_to(*prompt, *request));
      }
      to_others += to_class;
    }
    if (left <= to_others || !can_decode(*request) ||
        !make_room(*request, request->scheduled_tokens + 1, plan)) {
      continue;
    }
    // A draft takes no row that others could have.
    const auto rows_behind = static_cast<uint32_t>(rows.size() - row - 1);
    const uint32_t spare = left - std::min(left, 1 + to_others + rows_behind);
    const uint32_t n_rows = options_.token_budget - left + 1 + rows_behind;  // without drafts
    const uint32_t alike = draft_rows_ - std::min(draft_rows_, n_rows);
    const uint32_t n_draft = draft_rows(*request, std::min({spare, alike, open.spare_logit_rows}));
    add_chunk(*request, 1 + n_draft, true, now_s, plan, open);
    left -= 1 + n_draft;
    reserved[own] -= reserved[own] > 0 ? 1 : 0;
  }
}

/// What this step may take so that no stream waits for its next token beyond the objective: those
/// of rows in it are due when it ends. A step that ends before the next token is due disturbs
/// nobody.
double Scheduler::most_seconds(const StepPlan& plan, double now_s) const {
  if (options_.tpot_target_s == 0) return kNeverS;
  double next_s = plan.shape.decode_rows > 0 ? now_s : kNeverS;
  for (const Request* request : running_) {
    if (wants_token(*request)) next_s = std::min(next_s, request->due_s);
  }
  return std::max(options_.tpot_target_s, next_s - now_s);
}

/// How far the next chunk of a prompt goes: as the budget and the objective allow, to a block's
/// edge if that is progress.
uint32_t Scheduler::prefill_tokens(const Request& request, const StepPlan& plan,
                                   const OpenStep& open, double most_s) {
  const uint32_t block_tokens = cache_.options().block_tokens;
  const uint32_t first = request.scheduled_tokens;
  const uint32_t left = request.sequence_tokens - first;
  const uint32_t used = plan.n_tokens();
  uint32_t most = std::min({left, options_.chunk_tokens, options_.token_budget - used});
  if (most == 0) return 0;
  if (request.has_prompt_logits && open.spare_logit_rows < most) most = 1 + open.spare_logit_rows;
  if (most_s < kNeverS) {
    const uint32_t smallest = std::min(most, block_tokens - first % block_tokens);
    uint32_t within =
        cost_.calibrated() ? cost_.tokens_within(most_s, plan.shape, first, most) : smallest;
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
bool Scheduler::plan_prefill(Request& request, double most_s, StepPlan& plan, OpenStep& open,
                             double now_s) {
  uint32_t n_tokens = prefill_tokens(request, plan, open, most_s);
  if (n_tokens == 0) return false;
  const uint32_t first = request.scheduled_tokens;
  if (!cache_.reserve(*request.sequence, first + n_tokens).ok()) {
    // As far as it has pages; where it has none, hold_room sees to it when its turn comes.
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
  if (cache_.kinds().windows() == 0 && cache_.kinds().recurrent() == 0) return;
  const uint32_t block_tokens = cache_.options().block_tokens;
  for (Request* request : std::vector<Request*>(running_)) {
    if (!request->running() || !reads_prompt(*request)) continue;
    if (request->scheduled_tokens != request->computed_tokens) continue;
    const uint32_t next_edge = (request->scheduled_tokens / block_tokens + 1) * block_tokens;
    (void)make_room(*request, std::min(next_edge, request->sequence_tokens), plan);
  }
}

void Scheduler::plan_prefills(StepPlan& plan, OpenStep& open, double now_s) {
  std::vector<Request*> partial;
  for (Request* request : running_) {
    if (wants_chunk(*request)) partial.push_back(request);
  }
  std::ranges::sort(partial, TurnBefore{});
  const double most_s = most_seconds(plan, now_s);
  // The next to start, or null. One that needs others' places had its chance before the rows.
  bool may_start = true;
  const auto next_to_start = [&]() -> Request* {
    if (!may_start || waiting_.empty()) return nullptr;
    Request* head = *waiting_.begin();
    return running_.empty() || !makes_way(*running_.back(), *head) ? head : nullptr;
  };
  for (auto next = partial.begin(); plan.n_tokens() < options_.token_budget;) {
    Request* head = next_to_start();
    if (head != nullptr && (next == partial.end() || TurnBefore{}(head, *next))) {
      // Do not take pages for a request that gets no tokens in this step.
      const bool no_time = most_s < kNeverS && plan.shape.prefill_tokens > 0 &&
                           cost_.tokens_within(most_s, plan.shape, 0, 1) == 0;
      may_start = !no_time && start_first(plan, open, now_s);
      if (may_start && !plan_prefill(*head, most_s, plan, open, now_s)) return;
    } else if (next != partial.end()) {
      if (!plan_prefill(**next++, most_s, plan, open, now_s)) return;
    } else {
      return;
    }
  }
}

void Scheduler::fail(Request& request, Error why, StepPlan& plan, double now_s) {
  request.failure = std::move(why);
  end(request.id, EndReason::kError, now_s);
  plan.ended.push_back(request.id);
}

/// The cache has got fewer pages than these need alone: they would wait for ever, and take others'
/// pages for nothing.
void Scheduler::fail_unfitting(StepPlan& plan, double now_s) {
  if (cache_.n_pages() >= cache_.options().n_pages || cache_.pool().unlimited()) return;
  std::vector<Request*> all(running_);
  all.insert(all.end(), waiting_.begin(), waiting_.end());
  for (Request* request : all) {
    const uint64_t n_needed = cache_.kinds().pages_for(request->sequence_tokens, 1);
    if (n_needed <= cache_.n_pages()) continue;
    fail(*request,
         make_error(ErrorCode::kDoesNotFit,
                    "{} tokens need {} KV pages, and the cache was made smaller: it has {} of {}",
                    request->sequence_tokens, n_needed, cache_.n_pages(), cache_.options().n_pages),
         plan, now_s);
  }
}

/// Nothing can be planned and nothing is under way. Only pinned pages can bring this about, since
/// without them there is room for any one request: fail the first.
void Scheduler::fail_stuck(StepPlan& plan, double now_s) {
  // A request that waits for a time is not stuck, nor is one that waits for its pages.
  if (std::isfinite(first_due_s(now_s))) return;
  const auto stuck = std::ranges::find_if(running_, [&](const Request* request) {
    return can_decode(*request) || reads_prompt(*request);
  });
  if (stuck == running_.end() && (waiting_.empty() || !running_.empty())) return;
  Request& request = stuck != running_.end() ? **stuck : **waiting_.begin();
  fail(request,
       make_error(ErrorCode::kDoesNotFit, "{} tokens do not fit: {} of {} KV pages are free",
                  request.sequence_tokens, cache_.n_free_pages(), cache_.n_pages()),
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
  open.spare_logit_rows = options_.spare_logit_rows;
  expire(plan, now_s);
  fail_unfitting(plan, now_s);
  give_turns(now_s);
  start_better(plan, open, now_s);
  hold_room(plan);
  plan_decodes(plan, open, now_s);
  plan_prefills(plan, open, now_s);
  if (plan.chunks.empty() && outstanding_.empty()) fail_stuck(plan, now_s);
  if (blocked_) blocked_->second = std::min(blocked_->second, cache_.n_free_pages());
  plan.transfers = cache_.take_transfers();
  last_plan_s_ = plan.empty() && outstanding_.empty() ? kNeverS : now_s;
  next_due_s_ = 0;
  if (plan.empty()) {
    PUMICE_CHECK(plan.started.empty(), "a plan without work started a request");
    if (plan.ended.empty()) next_due_s_ = std::min(first_due_s(now_s), next_turn_s());
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
