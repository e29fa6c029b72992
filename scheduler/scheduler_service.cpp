// Scheduler: the order of service, which requests start and which make way ("The service rule" in
// docs/ARCHITECTURE.md).
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "scheduler/scheduler.hpp"

namespace pumice {

Scheduler::Equals Scheduler::equals(const Request* request) {
  return {!request->on_turn, request->service_class, request->priority};
}

bool Scheduler::TurnBefore::operator()(const Request* a, const Request* b) const {
  return std::tuple(equals(a), a->turn) < std::tuple(equals(b), b->turn);
}

// ---- classes age

/// In the order of service or in the queue: where it has its place by its rank.
void Scheduler::set_turn(Request& request, bool on_turn) {
  const bool runs = request.running();
  if (runs) {
    std::erase(running_, &request);
  } else {
    waiting_.erase(&request);
  }
  request.on_turn = on_turn;
  request.turn_ends_s = kNeverS;
  turns_[static_cast<size_t>(request.service_class)] = on_turn ? &request : nullptr;
  if (runs) {
    running_.insert(std::ranges::upper_bound(running_, &request, ServedBefore{}), &request);
  } else {
    waiting_.insert(&request);
  }
  blocked_.reset();
}

/// Of those not on turn.
Request* Scheduler::first_that_waits(ServiceClass service_class) const {
  const auto it =
      waiting_.lower_bound(Rank{true, service_class, std::numeric_limits<int32_t>::min(), 0, 0});
  return it != waiting_.end() && (*it)->service_class == service_class ? *it : nullptr;
}

/// Progress is what is committed, not what is planned: a request that is preempted again and again
/// before its step lands has none.
void Scheduler::give_turns(double now_s) {
  if (options_.aging_s == 0) return;
  // The host may have done something else. Of a time without plans no more counts than a turn
  // takes, but where there was nothing to plan.
  const double uncounted_s = now_s - last_plan_s_ - options_.aging_s / 8;
  for (double& since_s : unserved_since_s_) {
    if (uncounted_s > 0 && since_s < now_s) since_s = std::min(now_s, since_s + uncounted_s);
  }
  for (Request* holder : turns_) {
    if (holder != nullptr && now_s >= holder->turn_ends_s) set_turn(*holder, false);
  }
  struct {
    Request* first = nullptr;
    bool under_way = false;
  } classes[kServiceClasses];
  for (Request* request : running_) {
    auto& its = classes[static_cast<size_t>(request->service_class)];
    its.under_way |= request->scheduled_tokens > request->computed_tokens;
    if (its.first != nullptr) continue;
    const bool due = request->due_s <= now_s && can_decode(*request);
    if (due || reads_prompt(*request)) its.first = request;
  }
  for (const ServiceClass service_class : {ServiceClass::kNormal, ServiceClass::kBatch}) {
    const auto index = static_cast<size_t>(service_class);
    const Request* holder = turns_[index];
    Request* first = classes[index].first;
    Request* waits = first_that_waits(service_class);
    if (first == nullptr || (waits != nullptr && ServedBefore{}(waits, first))) {
      first = waits != nullptr ? waits : first;
    }
    double& since_s = unserved_since_s_[index];
    if (first == nullptr && (holder == nullptr || holder->running())) {
      since_s = kNeverS;
      continue;
    }
    if (since_s == kNeverS) since_s = now_s;
    if (holder != nullptr || classes[index].under_way) continue;
    if (now_s - since_s >= options_.aging_s) set_turn(*first, true);
  }
}

/// When the next class gets a turn, if nothing new of it is computed before.
double Scheduler::next_turn_s() const {
  double next_s = kNeverS;
  for (size_t i = 0; i < kServiceClasses && options_.aging_s > 0; ++i) {
    const bool ages = static_cast<ServiceClass>(i) != ServiceClass::kInteractive;
    if (ages && turns_[i] == nullptr) next_s = std::min(next_s, unserved_since_s_[i]);
  }
  return next_s + options_.aging_s;
}

// ---- clients take turns

/// A client that sent many is not before one that sent few: each one's next is of the next round. One
/// that has nothing waiting begins with the round that is on.
uint64_t Scheduler::next_round(uint64_t client, ServiceClass service_class) const {
  uint64_t last = rounds_[static_cast<size_t>(service_class)];
  if (client == 0) return last + 1;
  for (const Request* request : waiting_) {
    const bool is_its = request->client == client && request->service_class == service_class;
    if (is_its) last = std::max(last, request->round);
  }
  return last + 1;
}

// ---- making way

/// For one that grows.
Request* Scheduler::worst_unplanned(const Request* spare) const {
  for (auto it = running_.rbegin(); it != running_.rend(); ++it) {
    const bool in_step = (*it)->last_planned == next_plan_ || (*it)->started_in == next_plan_;
    if (*it != spare && !in_step) return *it;
  }
  return nullptr;
}

bool Scheduler::makes_way(const Request& one, const Request& that_starts) {
  return !one.on_turn && (that_starts.on_turn || one.service_class > that_starts.service_class);
}

/// The requests that make way for it; the one served last comes last.
std::vector<Request*> Scheduler::lesser_than(const Request& request) const {
  std::vector<Request*> lesser;
  for (auto it = running_.rbegin(); it != running_.rend(); ++it) {
    if (!makes_way(**it, request)) break;
    lesser.push_back(*it);
  }
  std::ranges::reverse(lesser);
  return lesser;
}

// ---- starting

/// Whether it finds pages for its whole prompt if those `without` had ended. Each that still runs
/// is left a block to grow into, or they would soon take these back.
bool Scheduler::fits(const Request& request, std::span<Request* const> without) const {
  const uint64_t n_others = running_.size() - without.size();
  if (n_others == 0) return true;
  std::vector<SequenceId> ended;
  ended.reserve(without.size());
  for (const Request* other : without) ended.push_back(*other->sequence);
  const KvCache::Room room = cache_.room(request.prompt, ended);
  const PageKinds& kinds = cache_.kinds();
  return kinds.pages_for(request.sequence_tokens, options_.chunk_tokens) +
             n_others * static_cast<uint64_t>(std::popcount(kinds.paged())) <=
         room.free_pages + room.shared_pages;
}

/// Prompts that are partly read and that it does not go before.
size_t Scheduler::n_read_before(const Request& request) const {
  return static_cast<size_t>(std::ranges::count_if(running_, [&](const Request* other) {
    return reads_prompt(*other) && equals(other) <= equals(&request);
  }));
}

/// Start the request at the head of the queue, if it can be.
bool Scheduler::start_first(StepPlan& plan, OpenStep& open, double now_s) {
  Request& request = **waiting_.begin();
  if (blocked_ && blocked_->first == request.id && cache_.n_free_pages() <= blocked_->second) {
    return false;
  }
  std::vector<Request*> lesser = lesser_than(request);
  const auto has_place = [&](size_t n_making_way) {
    return running_.size() + open.n_choices - n_making_way < options_.max_running;
  };
  if (!has_place(lesser.size())) return false;
  if (n_read_before(request) >= options_.max_partial_prefills) return false;
  const auto does_not_fit = [&] {
    blocked_ = {request.id, cache_.n_free_pages()};
    return false;
  };
  if (!lesser.empty() && !fits(request, lesser)) return does_not_fit();  // for nothing
  while (true) {
    if (has_place(0) && fits(request, {})) {
      Result<SequenceId> sequence = cache_.begin(request.prompt, request.sequence_tokens);
      if (sequence.ok()) {
        request.sequence = *sequence;
        break;
      }
    }
    if (lesser.empty()) return does_not_fit();
    preempt(*lesser.back(), plan);
    lesser.pop_back();
  }
  has_started(request, plan, open, now_s);
  return true;
}

void Scheduler::has_been_scheduled(Request& request, double now_s) {
  if (!std::isnan(request.times.first_scheduled)) return;
  request.times.first_scheduled = now_s;
  telemetry_.wait_seconds.add(now_s - request.times.arrived);
  telemetry_.prompt_tokens += request.prompt_tokens;
}

void Scheduler::has_started(Request& request, StepPlan& plan, OpenStep& open, double now_s) {
  blocked_.reset();
  request.slot = slots_.take();
  request.started_in = next_plan_;
  waiting_.erase(&request);
  uint64_t& round = rounds_[static_cast<size_t>(request.service_class)];
  round = std::max(round, request.round);
  const CacheReport& report = cache_.report(*request.sequence);
  request.computed_tokens = request.scheduled_tokens = report.cached_tokens;
  request.state = RequestState::kPrefilling;
  running_.insert(std::ranges::upper_bound(running_, &request, ServedBefore{}), &request);
  open.started.emplace_back(&request, request.epoch);
  plan.started.push_back(request.id);
  has_been_scheduled(request, now_s);
  if (request.prefill_iterations == 0) {  // an earlier start was rolled back and reused nothing
    telemetry_.cached_tokens -= request.cache.cached_tokens;
    telemetry_.cached_tokens += report.cached_tokens;
    request.cache = report;
  }
}

/// A better class does not wait for what a lesser one has. Before rows are planned, since a row of
/// this step cannot make way any more.
void Scheduler::start_better(StepPlan& plan, OpenStep& open, double now_s) {
  while (!waiting_.empty() && !running_.empty() &&
         makes_way(*running_.back(), **waiting_.begin())) {
    if (!start_first(plan, open, now_s)) return;
  }
}

}  // namespace pumice
