// What scheduler/ promises, written down as simply as possible over NaiveCache: the service rule of
// docs/ARCHITECTURE.md, with one list of requests that is searched and sorted anew whenever
// something is asked. Shares no code with the product; options and states are the product's public
// types.
#pragma once

#include <array>
#include <cmath>
#include <deque>
#include <limits>
#include <tuple>

#include "scheduler/scheduler.hpp"
#include "tests/model_fuzz/naive_cache.hpp"
#include "tests/model_fuzz/random_cache.hpp"

namespace pumice::model_fuzz {

inline constexpr double kNeverS = std::numeric_limits<double>::infinity();

struct NaiveRequest {
  RequestId id = 0;
  ServiceClass service_class = ServiceClass::kNormal;
  int32_t priority = 0;
  uint64_t arrival = 0;
  double deadline_s = 0;
  double token_s = 0;  // least time between tokens
  double due_s = 0;    // of the next
  bool runs_ahead = true;
  bool has_prompt_logits = false;
  std::string salt;
  size_t max_new = 0;

  RequestState state = RequestState::kWaiting;
  EndReason end_reason = EndReason::kNone;
  Tokens tokens;  // known ones
  size_t generated = 0;
  size_t computed = 0;
  size_t scheduled = 0;
  size_t sampling = 0;  // tokens that steps under way will bring
  size_t draft = 0;     // tokens guessed behind the known ones
  uint64_t life = 0;  // another one when steps under way no longer count; no two requests share one
  uint64_t last_planned = 0;  // the step it was in last
  uint64_t number = 0;        // taken when it came, and when it has had its turn
  uint64_t started = 0;       // the step that did
  size_t most_computed = 0;   // positions, ever
  bool on_turn = false;
  double turn_ends_s = kNeverS;
  size_t preemptions = 0;
  std::optional<NaiveCache::Id> sequence;

  bool running() const { return sequence.has_value(); }
  bool ended() const { return state >= RequestState::kFinished; }
  auto class_rank() const { return std::tuple(!on_turn, service_class); }
  auto equals_rank() const { return std::tuple(!on_turn, service_class, priority); }
  auto rank() const { return std::tuple(!on_turn, service_class, priority, arrival); }
  auto turn() const { return std::tuple(!on_turn, service_class, priority, number); }
};

struct NaiveChunk {
  RequestId request = 0;
  uint64_t life = 0;
  size_t first = 0;
  size_t n = 0;
  size_t samples = 0;  // of its last rows
  bool decodes = false;
  double due_s = 0;     // of its request before
  uint64_t number = 0;  // likewise
};

struct NaivePlan {
  uint64_t id = 0;
  std::vector<NaiveChunk> chunks;
  std::vector<std::pair<RequestId, uint64_t>> started;  // with their lives
  std::vector<RequestId> preempted;
  std::vector<RequestId> ended;
  size_t n_copies = 0;
  bool answered = false;         // what was to be copied was, or not
  bool fails_what_fits = false;  // never right

  bool empty() const { return chunks.empty() && n_copies == 0; }
  size_t n_tokens() const {
    size_t n = 0;
    for (const NaiveChunk& chunk : chunks) n += chunk.n;
    return n;
  }
};

/// What adds up over everything that happened.
struct NaiveCounts {
  uint64_t arrived = 0, finished = 0, cancelled = 0, failed = 0, preemptions = 0, steps = 0;
  uint64_t failed_steps = 0, computed = 0, discarded = 0, generated = 0;
  uint64_t losses = 0;    // of the device
  uint64_t turns = 0;     // of classes
  uint64_t made_way = 0;  // for one that started
  uint64_t drafted = 0;   // tokens of drafts that were verified
  uint64_t refusals = 0;  // of drafts, in part
};

class NaiveScheduler {
 public:
  NaiveScheduler(const SchedulerOptions& options, const KvCacheOptions& cache)
      : options_(options), block_tokens_(cache.block_tokens), cache_(naive_cache(cache)) {
    options_.chunk_tokens = std::min(options_.chunk_tokens, options_.token_budget);
  }

  NaiveCache& cache() { return cache_; }
  const NaiveCounts& counts() const { return counts_; }
  const std::map<RequestId, NaiveRequest>& requests() const { return requests_; }
  void remove(RequestId id) { requests_.erase(id); }
  const NaiveRequest& request(RequestId id) const { return requests_.at(id); }
  const std::deque<NaivePlan>& open() const { return open_; }

  bool fits(size_t prompt_tokens, size_t max_new) const {
    const size_t window = options_.window_tokens;
    if (prompt_tokens == 0 || (window != 0 && prompt_tokens > window)) return false;
    const size_t most =
        window == 0 ? prompt_tokens + max_new : std::min(window, prompt_tokens + max_new);
    return cache_.unlimited() || cache_.pages_for(most, 1) <= cache_.n_pages();
  }

  void add(NaiveRequest request) {
    request.arrival = ++arrivals_;
    request.number = ++numbers_;
    request.life = ++lives_;
    ++counts_.arrived;
    requests_.emplace(request.id, std::move(request));
  }

  void end(RequestId id, EndReason reason) {
    NaiveRequest& request = requests_.at(id);
    if (request.ended()) return;
    if (request.running()) cache_.end(*request.sequence);
    request.sequence.reset();
    request.end_reason = reason;
    request.life = ++lives_;
    blocked_.reset();
    if (reason == EndReason::kCancelled) {
      request.state = RequestState::kCancelled;
      ++counts_.cancelled;
    } else if (reason == EndReason::kDeadline || reason == EndReason::kError) {
      request.state = RequestState::kFailed;
      ++counts_.failed;
    } else {
      request.state = RequestState::kFinished;
      ++counts_.finished;
    }
  }

  void restart(RequestId id, const Tokens& tokens) {
    NaiveRequest& request = requests_.at(id);
    if (request.running()) wait_again(request);
    request.tokens = tokens;
    request.most_computed = 0;
    blocked_.reset();
  }

  NaivePlan plan(double now_s) {
    now_s_ = now_s;
    NaivePlan plan{.id = next_plan_};
    expire(plan, now_s);
    skip_pause();
    give_turns();
    start_better(plan);
    hold_room(plan);
    plan_decodes(plan);
    plan_prefills(plan);
    if (blocked_) blocked_->second = std::min(blocked_->second, cache_.n_free());
    if (plan.chunks.empty() && open_.empty()) fail_stuck(plan);
    for (const auto& [id, life] : plan.started) {
      if (still_runs(id, life)) plan.n_copies += cache_.n_copies(*requests_.at(id).sequence);
    }
    had_work_ = !plan.empty() || !open_.empty();
    last_plan_s_ = now_s;
    if (plan.empty()) return plan;
    ++next_plan_;
    open_.push_back(plan);
    return plan;
  }

  /// The copies of a plan were made, or not. Whether the plan still stands.
  bool answer(uint64_t plan_id, bool good) {
    bool lost = false;
    for (NaivePlan& plan : open_) {
      if (plan.id != plan_id) continue;
      plan.answered = true;
      for (const auto& [id, life] : plan.started) {
        if (!still_runs(id, life)) continue;
        const NaiveRequest& request = requests_.at(id);
        if (!cache_.waits_for_copies(*request.sequence)) continue;
        cache_.copied(*request.sequence, good);
        lost |= !good;
      }
    }
    if (lost) rollback(plan_id);
    return !lost;
  }

  /// Which chunks count; `taken`: what each goes on with.
  std::vector<bool> commit(const std::vector<Tokens>& taken, double now_s) {
    now_s_ = now_s;
    const NaivePlan plan = open_.front();
    open_.pop_front();
    ++counts_.steps;
    std::vector<bool> counted;
    for (size_t i = 0; i < plan.chunks.size(); ++i) {
      const NaiveChunk& chunk = plan.chunks[i];
      counted.push_back(counts(chunk));
      if (counted.back()) {
        commit_chunk(chunk, taken.at(i));
      } else {
        counts_.discarded += chunk.n;
      }
    }
    return counted;
  }

  void rollback(uint64_t plan_id) {
    while (!open_.empty() && open_.back().id >= plan_id) {
      const NaivePlan plan = open_.back();
      open_.pop_back();
      ++counts_.failed_steps;
      for (size_t i = plan.chunks.size(); i-- > 0;) {
        const NaiveChunk& chunk = plan.chunks[i];
        if (!counts(chunk)) continue;
        NaiveRequest& request = requests_.at(chunk.request);
        request.scheduled = chunk.first;
        request.sampling -= chunk.samples;
        request.due_s = chunk.due_s;
        request.number = chunk.number;
        cache_.unplan(*request.sequence, chunk.first);
        if (chunk.decodes) cache_.shrink(*request.sequence, chunk.first);
      }
      for (const auto& [id, life] : plan.started) {
        if (still_runs(id, life)) wait_again(requests_.at(id));
      }
    }
  }

  /// Nothing is under way any more, nothing runs, nothing is cached.
  void lose_device() {
    if (!open_.empty()) rollback(open_.front().id);
    for (NaiveRequest* request : running()) wait_again(*request);
    cache_.forget_all();
    ++counts_.losses;
  }

  std::vector<NaiveRequest*> running() {
    return in_order([](const NaiveRequest& request) { return request.running(); });
  }
  std::vector<NaiveRequest*> waiting() {
    return in_order(
        [](const NaiveRequest& request) { return request.state == RequestState::kWaiting; });
  }

  /// Whether the first that waits was found not to fit.
  bool lacks_pages() { return blocked_ && blocked_->first == waiting().front()->id; }

  /// A prompt of which something is left to plan.
  bool reads_prompt(const NaiveRequest& request) const {
    return request.state == RequestState::kPrefilling &&
           request.scheduled < request.tokens.size() && !can_decode(request);
  }

  /// Nothing but the next token is to be computed, and it is allowed.
  bool can_decode(const NaiveRequest& request) const {
    const bool prompt_is_read = request.generated + request.sampling > 0;
    const bool only_one_left = request.tokens.size() + request.sampling == request.scheduled + 1;
    const bool wants_more = request.generated + request.sampling < request.max_new;
    const bool has_room = options_.window_tokens == 0 || request.scheduled < options_.window_tokens;
    return request.running() && prompt_is_read && only_one_left && wants_more && has_room &&
           (request.sampling == 0 || (request.sampling == 1 && request.runs_ahead));
  }

  /// Rows that a draft may have: every one of them must be able to bring a token, and to have come
  /// by itself.
  size_t most_draft(const NaiveRequest& request) const {
    if (request.sampling > 0 || request.token_s > 0 || !can_decode(request)) return 0;
    size_t n = 0;
    const auto next_may_come = [&] {
      const size_t generated = request.generated + n + 1;
      const size_t position = request.scheduled + n + 1;
      return generated < request.max_new && n + 1 < options_.token_budget &&
             n < options_.spare_logit_rows &&
             (options_.window_tokens == 0 || position < options_.window_tokens);
    };
    while (next_may_come()) ++n;
    return n;
  }
  void draft(RequestId id, size_t n) {
    NaiveRequest& request = requests_.at(id);
    request.draft = std::min(n, most_draft(request));
  }

 private:
  using Requests = std::vector<NaiveRequest*>;

  template <typename Wanted>
  std::vector<NaiveRequest*> in_order(Wanted wanted) {
    std::vector<NaiveRequest*> all;
    for (auto& [id, request] : requests_) {
      if (wanted(request)) all.push_back(&request);
    }
    std::ranges::sort(all, {}, [](const NaiveRequest* request) { return request->rank(); });
    return all;
  }

  /// Since this life began; it may have ended, or been removed, and its id given to another.
  bool still_runs(RequestId id, uint64_t life) const {
    const auto it = requests_.find(id);
    return it != requests_.end() && it->second.life == life && it->second.running();
  }
  bool counts(const NaiveChunk& chunk) const { return still_runs(chunk.request, chunk.life); }

  void wait_again(NaiveRequest& request) {
    cache_.end(*request.sequence);
    request.sequence.reset();
    request.state = RequestState::kWaiting;
    request.computed = request.scheduled = request.sampling = request.draft = 0;
    request.life = ++lives_;
    blocked_.reset();
  }
  void preempt(NaiveRequest& request, NaivePlan& plan) {
    wait_again(request);
    ++request.preemptions;
    ++counts_.preemptions;
    plan.preempted.push_back(request.id);
  }

  void expire(NaivePlan& plan, double now_s) {
    std::vector<std::pair<double, RequestId>> late;
    for (const auto& [id, request] : requests_) {
      if (!request.ended() && request.deadline_s < now_s) late.emplace_back(request.deadline_s, id);
    }
    std::ranges::sort(late);
    for (const auto& [deadline, id] : late) {
      end(id, EndReason::kDeadline);
      plan.ended.push_back(id);
    }
  }

  /// A time without plans counts for a turn at most, unless there was nothing to plan.
  void skip_pause() {
    const double uncounted = now_s_ - last_plan_s_ - options_.aging_s / 8;
    if (!had_work_ || uncounted <= 0) return;
    for (double& since : unserved_since_) {
      if (since != kNeverS) since = std::min(now_s_, since + uncounted);
    }
  }

  /// A class that could be served, and of which nothing new is computed for long, gets a turn.
  void give_turns() {
    for (const ServiceClass c : {ServiceClass::kNormal, ServiceClass::kBatch}) {
      NaiveRequest* first = nullptr;
      bool has_turn = false;
      bool under_way = false;
      for (auto& [id, request] : requests_) {
        if (request.ended() || request.service_class != c) continue;
        if (request.on_turn && now_s_ >= request.turn_ends_s) {
          request.on_turn = false;
          blocked_.reset();
        }
        has_turn |= request.on_turn;
        under_way |= request.scheduled > request.computed;
        const bool could_be_served = !request.running() || reads_prompt(request) ||
                                     (can_decode(request) && request.due_s <= now_s_);
        if (could_be_served && (first == nullptr || request.rank() < first->rank()))
          first = &request;
      }
      double& since = unserved_since_[static_cast<size_t>(c)];
      if (first == nullptr) {
        since = kNeverS;
        continue;
      }
      if (since == kNeverS) since = now_s_;
      if (options_.aging_s == 0 || has_turn || under_way) continue;
      if (now_s_ - since < options_.aging_s) continue;
      ++counts_.turns;
      first->on_turn = true;
      first->turn_ends_s = kNeverS;
      blocked_.reset();
    }
  }

  /// Who of the running gives way first to one that grows: served last, not in this step yet.
  NaiveRequest* last_unplanned(const NaiveRequest* spared) {
    const std::vector<NaiveRequest*> all = running();
    for (size_t i = all.size(); i-- > 0;) {
      const bool in_step = all[i]->started == next_plan_ || all[i]->last_planned == next_plan_;
      if (all[i] != spared && !in_step) return all[i];
    }
    return nullptr;
  }

  bool make_room(NaiveRequest& request, size_t end, NaivePlan& plan) {
    while (!cache_.reserve(*request.sequence, end)) {
      NaiveRequest* victim = last_unplanned(&request);
      if (victim == nullptr || victim->rank() < request.rank()) return false;
      preempt(*victim, plan);
    }
    return true;
  }

  /// Room for the next block of each prompt of which nothing is under way, where kinds take it
  /// step by step, before others can have it.
  void hold_room(NaivePlan& plan) {
    const bool stepwise = std::ranges::any_of(
        cache_.kinds(), [](const NaiveKind& kind) { return kind.recurrent || kind.window > 0; });
    if (!stepwise) return;
    for (NaiveRequest* request : running()) {
      if (!request->running() || !reads_prompt(*request)) continue;  // preempted just now
      if (request->scheduled != request->computed) continue;
      size_t end = request->scheduled + 1;
      while (end % block_tokens_ != 0) ++end;
      make_room(*request, std::min(end, request->tokens.size()), plan);
    }
  }

  void add_chunk(NaiveRequest& request, size_t n, bool decodes, NaivePlan& plan) {
    const bool to_the_end = request.scheduled + n == request.tokens.size() + request.sampling;
    const bool wants_more = request.generated + request.sampling < request.max_new;
    const size_t samples = decodes ? n : to_the_end && wants_more ? 1 : 0;
    const bool has_prompt_of_equal =
        !decodes && std::ranges::any_of(plan.chunks, [&](const NaiveChunk& chunk) {
          return !chunk.decodes &&
                 requests_.at(chunk.request).equals_rank() == request.equals_rank();
        });
    plan.chunks.push_back({request.id, request.life, request.scheduled, n, samples, decodes,
                           request.due_s, request.number});
    if (samples > 0)
      request.due_s = std::max(request.due_s, now_s_ - request.token_s) + request.token_s;
    cache_.plan(*request.sequence, request.scheduled + n);
    request.scheduled += n;
    request.sampling += samples;
    request.last_planned = next_plan_;
    // Of prompts that are equals, only the first in a step has its turn.
    if (!has_prompt_of_equal) request.number = ++numbers_;
  }

  /// The prompt that goes first: partly read, or of the first that waits, if there is a place and
  /// it is not known that it does not fit.
  NaiveRequest* first_prompt() {
    NaiveRequest* first = nullptr;
    const auto consider = [&](NaiveRequest* request) {
      if (first == nullptr || request->turn() < first->turn()) first = request;
    };
    for (NaiveRequest* request : running()) {
      if (wants_chunk(*request)) consider(request);
    }
    if (!waiting().empty() && running().size() < options_.max_running) {
      NaiveRequest* head = waiting().front();
      if (!blocked_ || blocked_->first != head->id) consider(head);
    }
    return first;
  }

  /// What a row leaves of the budget to that prompt.
  size_t left_to(const NaiveRequest& prompt, const NaiveRequest& row) const {
    if (prompt.class_rank() < row.class_rank()) {
      return std::min(block_tokens_, prompt.tokens.size() - prompt.scheduled);
    }
    return prompt.turn() < row.turn() ? 1 : 0;
  }

  void plan_decodes(NaivePlan& plan) {
    std::array<size_t, kServiceClasses> promised = {};
    std::vector<NaiveRequest*> with_work = running();
    if (!waiting().empty()) with_work.push_back(waiting().front());
    for (const NaiveRequest* request : with_work) {
      const auto c = static_cast<size_t>(request->service_class);
      promised[c] = options_.reserved_decode_tokens[c];
    }
    const NaiveRequest* prompt = first_prompt();
    std::vector<NaiveRequest*> rows = running();
    std::erase_if(rows, [&](const NaiveRequest* request) {
      return !can_decode(*request) || request->due_s > now_s_ || request->started == next_plan_;
    });
    size_t n_wanted = rows.size() + block_tokens_;
    for (const size_t n : promised) n_wanted += n;
    if (n_wanted > options_.token_budget) {
      std::ranges::sort(rows, {}, [](const NaiveRequest* request) { return request->turn(); });
    }
    size_t n_behind = rows.size();
    for (NaiveRequest* request : rows) {
      --n_behind;
      size_t others = 0;
      for (size_t c = 0; c < kServiceClasses; ++c) {
        if (c == static_cast<size_t>(request->service_class)) continue;
        const bool has_prompt =
            prompt != nullptr && c == static_cast<size_t>(prompt->service_class);
        others += std::max(promised[c], has_prompt ? left_to(*prompt, *request) : 0);
      }
      if (prompt != nullptr && prompt->service_class == request->service_class) {
        others += left_to(*prompt, *request);
      }
      if (plan.n_tokens() + others >= options_.token_budget) continue;
      if (!can_decode(*request) || !make_room(*request, request->scheduled + 1, plan)) continue;
      // Its draft, as long as nothing is taken from anyone.
      size_t n_draft = 0;
      const auto has_next = [&] {
        const size_t n_rows = 1 + n_draft + 1;
        return n_draft < std::min(request->draft, most_draft(*request)) &&
               n_spare_used(plan) + n_draft < options_.spare_logit_rows &&
               plan.n_tokens() + others + n_behind + n_rows <= options_.token_budget;
      };
      while (has_next()) ++n_draft;
      if (!cache_.reserve(*request->sequence, request->scheduled + 1 + n_draft)) {
        n_draft = cache_.reserved(*request->sequence, request->scheduled + 1 + n_draft) -
                  request->scheduled - 1;
      }
      add_chunk(*request, 1 + n_draft, true, plan);
      size_t& own = promised[static_cast<size_t>(request->service_class)];
      if (own > 0) --own;
    }
  }

  /// Rows of logits beside one for each request.
  size_t n_spare_used(const NaivePlan& plan) const {
    size_t n = 0;
    for (const NaiveChunk& chunk : plan.chunks) {
      const bool all = chunk.decodes || requests_.at(chunk.request).has_prompt_logits;
      n += all ? chunk.n - 1 : 0;
    }
    return n;
  }

  bool plan_prefill(NaiveRequest& request, NaivePlan& plan) {
    const size_t first = request.scheduled;
    const size_t left = request.tokens.size() - first;
    size_t n =
        std::min<size_t>({left, options_.chunk_tokens, options_.token_budget - plan.n_tokens()});
    if (n == 0) return false;
    if (request.has_prompt_logits) {
      n = std::min(n, 1 + options_.spare_logit_rows - n_spare_used(plan));
    }
    const auto kept = cache_.next_kept(*request.sequence, first);
    if (kept && *kept < first + n) {  // a state is kept here
      n = *kept - first;
    } else if (n < left) {  // back to a block's edge, if one is passed
      for (size_t end = first + n; end > first; --end) {
        if (end % block_tokens_ == 0) {
          n = end - first;
          break;
        }
      }
    }
    if (!cache_.reserve(*request.sequence, first + n)) {
      n = cache_.reserved(*request.sequence, first + n) - first;
      if (n == 0) return true;
    }
    add_chunk(request, n, false, plan);
    return true;
  }

  /// Who starts gets a chunk at once, and rows afterwards.
  bool wants_chunk(const NaiveRequest& request) const {
    return reads_prompt(request) || request.started == next_plan_;
  }

  /// Those who make way for one that starts, the last one last.
  Requests lesser_than(const NaiveRequest& request) {
    Requests lesser = running();
    std::erase_if(lesser, [&](const NaiveRequest* other) {
      return other->on_turn || (!request.on_turn && other->service_class <= request.service_class);
    });
    return lesser;
  }

  /// Blocks for the whole prompt, and one for each other to grow into, if these did not run.
  bool fits(const NaiveRequest& request, const Requests& without) {
    const size_t n_others = running().size() - without.size();
    if (n_others == 0) return true;
    std::vector<NaiveCache::Id> ids;
    for (const NaiveRequest* other : without) ids.push_back(*other->sequence);
    size_t needed = cache_.pages_for(request.tokens.size(), options_.chunk_tokens);
    for (const NaiveKind& kind : cache_.kinds()) needed += kind.recurrent ? 0 : n_others;
    needed -= cache_.n_shared_without(request.tokens, request.salt, ids);
    return cache_.unlimited() || needed <= cache_.n_free_without(ids);
  }

  /// The first that waits gets a place and blocks, if it can.
  bool start(NaivePlan& plan) {
    NaiveRequest& request = *waiting().front();
    size_t n_read = 0;
    for (const NaiveRequest* other : running()) {
      n_read += reads_prompt(*other) && other->equals_rank() <= request.equals_rank() ? 1 : 0;
    }
    if (n_read >= options_.max_partial_prefills) return false;
    // Whoever did not fit is tried again when more blocks are free than were at any time since, a
    // prompt was read further, someone has stopped running or a turn has begun or ended.
    if (blocked_ && blocked_->first == request.id && cache_.n_free() <= blocked_->second)
      return false;
    const auto does_not_fit = [&] {
      blocked_ = {request.id, cache_.n_free()};
      return false;
    };
    Requests lesser = lesser_than(request);
    if (running().size() - lesser.size() >= options_.max_running) return false;
    if (!fits(request, lesser)) return does_not_fit();
    while (true) {
      if (running().size() < options_.max_running && fits(request, {})) {
        request.sequence = cache_.begin(request.tokens, request.salt, request.tokens.size());
        if (request.sequence) break;
      }
      if (lesser.empty()) return does_not_fit();
      ++counts_.made_way;
      preempt(*lesser.back(), plan);
      lesser.pop_back();
    }
    blocked_.reset();
    request.state = RequestState::kPrefilling;
    request.computed = request.scheduled = cache_.sequence(*request.sequence).cached;
    request.started = next_plan_;
    plan.started.emplace_back(request.id, request.life);
    return true;
  }

  /// A better class does not wait for a lesser one.
  void start_better(NaivePlan& plan) {
    while (!waiting().empty() && !lesser_than(*waiting().front()).empty() && start(plan)) {
    }
  }

  void plan_prefills(NaivePlan& plan) {
    Requests partial = running();
    std::erase_if(partial, [&](const NaiveRequest* request) { return !wants_chunk(*request); });
    std::ranges::sort(partial, {}, [](const NaiveRequest* request) { return request->turn(); });
    bool may_start = true;
    while (plan.n_tokens() < options_.token_budget) {
      NaiveRequest* head = waiting().empty() || !may_start ? nullptr : waiting().front();
      if (head != nullptr && !lesser_than(*head).empty()) head = nullptr;
      if (head != nullptr && (partial.empty() || head->turn() < partial.front()->turn())) {
        may_start = start(plan);
        if (may_start && !plan_prefill(*head, plan)) break;
      } else if (!partial.empty()) {
        NaiveRequest& next = *partial.front();
        partial.erase(partial.begin());
        if (!plan_prefill(next, plan)) break;
      } else {
        break;
      }
    }
  }

  void fail_stuck(NaivePlan& plan) {
    std::optional<RequestId> stuck;
    for (const NaiveRequest* request : running()) {
      if (can_decode(*request) && request->due_s > now_s_) return;
      if (!stuck && (can_decode(*request) || reads_prompt(*request))) stuck = request->id;
    }
    if (!stuck && running().empty() && !waiting().empty()) stuck = waiting().front()->id;
    if (!stuck) return;
    const NaiveRequest& failed = requests_.at(*stuck);
    if (!failed.running()) {
      NaiveCache untouched = cache_;
      plan.fails_what_fits =
          untouched.begin(failed.tokens, failed.salt, failed.tokens.size()).has_value();
    }
    end(*stuck, EndReason::kError);
    plan.ended.push_back(*stuck);
  }

  void commit_chunk(const NaiveChunk& chunk, const Tokens& taken) {
    NaiveRequest& request = requests_.at(chunk.request);
    counts_.computed += chunk.n;
    // Rows behind the last whose token is taken did not run; of a state nothing remains but what it
    // was before and after all of them. What other rows computed is of tokens that are known now.
    const size_t refused = chunk.samples - taken.size();
    counts_.drafted += chunk.samples > 1 ? chunk.samples - 1 : 0;
    counts_.refusals += refused > 0 ? 1 : 0;
    const bool stays = refused == 0 || !cache_.any_recurrent();
    const auto take = [&](size_t i) {
      request.tokens.push_back(taken[i]);
      cache_.append(*request.sequence, taken[i]);
    };
    size_t n_known = 0;
    if (stays) {
      for (; n_known + 1 < taken.size(); ++n_known) take(n_known);
      request.computed += chunk.n - refused;
      cache_.commit(*request.sequence, request.computed);
    }
    if (refused > 0) {
      cache_.rewind(*request.sequence, request.computed);
      request.scheduled = request.computed;
      for (size_t i = request.computed; i < request.tokens.size(); ++i) {
        cache_.append(*request.sequence, request.tokens[i]);
      }
    }
    for (; n_known < taken.size(); ++n_known) take(n_known);
    if (request.computed > request.most_computed) {
      request.most_computed = request.computed;
      unserved_since_[static_cast<size_t>(request.service_class)] = now_s_;
    }
    if (!chunk.decodes) blocked_.reset();
    if (chunk.samples > 0) {
      if (request.on_turn && request.turn_ends_s == kNeverS) {
        request.turn_ends_s = now_s_ + options_.aging_s / 8;
      }
      request.sampling -= chunk.samples;
      request.generated += taken.size();
      counts_.generated += taken.size();
      request.draft = 0;
      request.state = stays ? RequestState::kDecoding : RequestState::kPrefilling;
    }
    const bool all_read = chunk.samples > 0 || request.computed == request.tokens.size();
    if (request.generated >= request.max_new && all_read) {
      end(request.id, EndReason::kLength);
    } else if (options_.window_tokens != 0 && options_.stop_at_window &&
               request.tokens.size() > options_.window_tokens) {
      end(request.id, EndReason::kWindow);
    }
  }

  SchedulerOptions options_;
  size_t block_tokens_;
  NaiveCache cache_;
  std::map<RequestId, NaiveRequest> requests_;
  std::deque<NaivePlan> open_;
  /// Who waits did not fit, and the fewest free blocks since.
  std::optional<std::pair<RequestId, size_t>> blocked_;
  std::array<double, kServiceClasses> unserved_since_ = {kNeverS, kNeverS, kNeverS};
  double now_s_ = 0;
  double last_plan_s_ = 0;
  bool had_work_ = false;
  NaiveCounts counts_;
  uint64_t arrivals_ = 0;
  uint64_t numbers_ = 0;
  uint64_t lives_ = 0;
  uint64_t next_plan_ = 1;
};

}  // namespace pumice::model_fuzz
