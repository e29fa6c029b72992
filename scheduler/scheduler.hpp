// What each request computes in the next step. One rule: every request catches up with its known
// tokens under a per-step token budget. Requests that decode come first; prompts follow in chunks,
// as large as the objective for the time between tokens allows. The order of service, which
// requests make way and whose turn it is: docs/ARCHITECTURE.md, "The service rule".
//
// A step is a transaction: `plan_step` decides and reserves, `commit` makes real what ran,
// `rollback` undoes what did not. One further step may be planned before the one before it is
// committed (its new tokens are known to the device by then, not to the host); what it computes for
// a request that has ended meanwhile is discarded.
//
// Pure C++: no device, no clock (callers pass seconds on a clock of theirs that never goes back),
// the same code under the simulator's virtual time. Not thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "base/result.hpp"
#include "cache/kv_cache.hpp"
#include "scheduler/cost_model.hpp"
#include "scheduler/request.hpp"
#include "scheduler/request_slots.hpp"
#include "scheduler/telemetry.hpp"

namespace pumice {

/// A run of consecutive positions of one request.
struct StepChunk {
  RequestId request = 0;
  uint32_t slot = 0;  ///< the request's
  uint32_t first_position = 0;
  uint32_t n_tokens = 0;
  /// Of its last rows, each samples the token that follows it: one row where the chunk ends with
  /// the last known token; with a draft that row and those of the draft behind it.
  uint32_t n_samples = 0;
  /// Rows that only sample next tokens. The token of a single one may be known to the device alone.
  bool decodes = false;
  /// Its one row is the last of the chunk before it: the request is another choice of what follows
  /// those tokens. It does not run yet; the slot is its own until the step has ended.
  bool shares_row = false;

  uint32_t n_draft() const { return n_samples > 0 ? n_samples - 1 : 0; }
};

/// The work of one step: plain data. Decoding requests come first.
struct StepPlan {
  uint64_t id = 0;
  std::vector<StepChunk> chunks;
  /// To be carried out before the chunks, and answered by Scheduler::finish_transfers.
  Transfers transfers;
  std::vector<RequestId> started;    ///< got pages, and what was cached, with this plan
  std::vector<RequestId> preempted;  ///< lost their pages to others and wait again
  std::vector<RequestId> ended;      ///< failed while planning: past their deadline, or do not fit
  StepShape shape;
  double predicted_s = 0;

  bool empty() const { return chunks.empty() && transfers.empty(); }
  uint32_t n_tokens() const;
};

struct SchedulerOptions {
  uint32_t token_budget = 512;  ///< most tokens in a step; at least a block
  uint32_t chunk_tokens = 512;  ///< most tokens of one prompt in a step
  /// Objective for the time between two tokens of a stream while prompts are read beside it: chunks
  /// shrink, down to a block, so that a step is predicted to take no longer. 0: none.
  double tpot_target_s = 0;
  uint32_t max_running = 1;  ///< most requests that hold pages
  /// A request starts only while fewer prompts of its class and priority, or better ones, are
  /// partly read.
  uint32_t max_partial_prefills = 4;
  uint32_t window_tokens = 0;  ///< most positions of a sequence; 0: what the pages hold
  /// Tokens of a step that the decoding rows of other classes leave to each class while it has
  /// anything to do, so that many requests of one class do not shut out another.
  std::array<uint32_t, kServiceClasses> reserved_decode_tokens = {};
  /// A class that could be served and of which nothing new was computed for so long gets a turn:
  /// one of its requests goes first, until an eighth of this time after its next token. 0: none.
  double aging_s = 60;
  /// Whether a request that has filled its window ends; otherwise it waits for `restart`.
  bool stop_at_window = true;
  /// Rows of logits in a step at most, beside one for each request: for drafts, and for prompts all
  /// rows of which have logits.
  uint32_t spare_logit_rows = 0;
};

/// What became of a chunk of a committed step.
struct ChunkOutcome {
  RequestId request = 0;
  bool counts = false;   ///< false: the request had ended, or had to start again
  bool sampled = false;  ///< it counts, and brought tokens
  bool ended = false;    ///< this was the request's last
};

class Scheduler {
 public:
  /// Errors: kInvalidArgument, naming the option: a budget below one block, a target below what one
  /// row alone takes on a calibrated device, no requests at once, or more than there are numbers.
  static Result<Scheduler> create(const SchedulerOptions& options, KvCacheOptions cache,
                                  const CostModel& cost = {});

  /// One in place of `failed`, which an exception has left in the middle of something: its options,
  /// costs and telemetry, an empty cache (no prompt cache file either) and no request. `adopt`
  /// brings those. What was learned of the device does not matter: the options were accepted.
  static Scheduler in_place_of(const Scheduler& failed);
  /// A request of another scheduler, whatever state it is in, waits in this one with these tokens;
  /// `generated_tokens` of its output were told.
  void adopt(const Request& request, std::span<const uint32_t> tokens, uint32_t generated_tokens);

  /// Whether one row alone can meet the target, as far as is known. Errors: kInvalidArgument.
  Status check_target() const;

  // ---- requests

  /// Queue a request. Errors, with nothing changed: kInvalidArgument (empty prompt, an id in use),
  /// kDoesNotFit (a prompt beyond the window, more than the pages could ever hold), each saying by
  /// how much.
  Result<RequestId> add(RequestSpec spec, double now_s);

  /// End a request at once, in any state, and free all it holds. Ended ones stay as they are.
  void cancel(RequestId id, double now_s) { end(id, EndReason::kCancelled, now_s); }
  /// End it for another reason: a stop token, an error.
  void end(RequestId id, EndReason reason, double now_s);

  /// Let a request that filled its window go on from these tokens, recomputed through the cache.
  void restart(RequestId id, std::span<const uint32_t> tokens);

  /// Forget an ended request.
  void remove(RequestId id);

  /// Valid until it is removed.
  const Request& request(RequestId id) const;
  /// The tokens known of its sequence: the prompt, or what a restart put in its place, and what was
  /// sampled since. Empty once it has ended, and with a keyed cache. Valid until the next call that
  /// changes the request.
  std::span<const uint32_t> tokens(RequestId id) const;
  /// As in KvCache, of a running request.
  std::span<const PageId> blocks(RequestId id, uint32_t kind = 0) const;
  PageId state(RequestId id, uint32_t kind, uint32_t position) const;

  // ---- drafts: tokens that may follow the known ones

  /// How many tokens of a draft could be verified beside the next row of a request; 0 also while it
  /// reads its prompt, and while a token is being sampled: what follows that is not known.
  uint32_t most_draft(RequestId id) const;
  /// Behind the request's next row these are verified, as many as fit into its step: each is a row
  /// that samples too, and `commit` says how many of their tokens count. They take no pages from
  /// others. Holds until the request gets a token or stops running.
  void draft(RequestId id, uint32_t n_tokens);
  /// What most_draft says of any request at most.
  uint32_t most_draft_of_any() const {
    return std::min({options_.spare_logit_rows, options_.token_budget - 1, draft_rows_ - 1});
  }
  /// RequestSpec::runs_ahead, from the next step on.
  void set_runs_ahead(RequestId id, bool runs_ahead) { requests_.at(id)->runs_ahead = runs_ahead; }
  /// No draft makes the rows that decode in a step more than these: their arithmetic would be
  /// another one. No limit at first.
  void set_draft_rows(uint32_t most) { draft_rows_ = most; }

  // ---- steps

  static constexpr size_t kMaxOutstanding = 2;  ///< planned and not committed

  /// The next step; empty when nothing can run now. At most kMaxOutstanding may be open.
  StepPlan plan_step(double now_s);
  /// Where nothing is under way: no step can be planned before this time, as far as the last plan
  /// and what has happened since tell. 0: one may be now. Infinite: only another request helps.
  double next_due_s() const { return next_due_s_; }

  /// The bytes that a plan wanted moved were moved, but for `failures`; a plan without transfers
  /// needs no call. False: requests lost their cached content, so the plan was rolled back; plan
  /// again.
  bool finish_transfers(const StepPlan& plan, const TransferFailures& failures = {});

  /// The oldest open step ran in `seconds` (NaN: not measured). `taken`: for each of its chunks, in
  /// order, the tokens that its request goes on with: of what its last n_samples rows sampled the
  /// first one at least, and any number of those behind. Rows whose tokens are not taken did not
  /// run: they are computed again, and where states are kept at ends of steps only, with them the
  /// whole chunk. Outcomes are those of the chunks, in order.
  std::vector<ChunkOutcome> commit(uint64_t plan_id,
                                   std::span<const std::span<const uint32_t>> taken, double now_s,
                                   double seconds);

  /// This open step and those planned after it did not run, or not to their end: undo them.
  /// Requests that they started wait again; those preempted to make room still wait.
  void rollback(uint64_t plan_id);

  /// The device's memory is gone (KvCache::forget_device): open steps are rolled back and running
  /// requests wait again with the tokens they know, to be read once more from the first position or
  /// from what host memory and the prompt cache file have. That counts as failed steps, and as
  /// preemptions nowhere: nobody made room. No open step is answered any more.
  void lose_device();

  /// The cache is about to have `n_pages` pages (KvCache::give_up is called, and the rest is the
  /// caller's): requests that run and are served last wait again, with the tokens they know, until
  /// those that stay have no more. No step is open.
  void give_up_pages(uint32_t n_pages);

  /// Whether all of this open step would still count: none of its requests has ended or begun again
  /// since it was planned.
  bool counts(uint64_t plan_id) const;
  /// Whether any of it would.
  bool counts_in_part(uint64_t plan_id) const;
  /// Whether that chunk of it would.
  bool counts(uint64_t plan_id, size_t chunk) const;

  size_t outstanding() const { return outstanding_.size(); }

  /// Slots are numbers below this. A request has one of its own from its start until it stops
  /// running: preempted, restarted, rolled back or ended. One that an open step names goes to no
  /// other request before that step is committed or rolled back; any other is free at once.
  uint32_t n_slots() const { return slots_.n_slots(); }

  // ---- the whole

  /// Nothing waits or runs. A step may still be under way for requests that have ended.
  bool idle() const { return n_waiting() == 0 && running_.empty(); }
  size_t n_waiting() const { return waiting_.size() + choices_.size(); }
  size_t n_running() const { return running_.size(); }
  const SchedulerOptions& options() const { return options_; }
  const KvCache& cache() const { return cache_; }
  KvCache& cache() { return cache_; }
  const CostModel& cost() const { return cost_; }
  const Telemetry& telemetry() const { return telemetry_; }
  void reset_telemetry() { telemetry_ = {}; }

  /// What a router in front of several engines needs: block size, budget, chunk range, measured
  /// rates.
  nlohmann::json profile_json() const;

  /// Errors: kInternal when requests, queues and cache disagree.
  Status check_integrity() const;

 private:
  static constexpr double kNeverS = std::numeric_limits<double>::infinity();

  /// Order of service: who is on turn, class, priority, round of its client, order of arrival.
  using Rank = std::tuple<bool, ServiceClass, int32_t, uint64_t, uint64_t>;
  static Rank rank(const Request* request) {
    return {!request->on_turn, request->service_class, request->priority, request->round,
            request->arrival};
  }
  static Rank rank(const Rank& rank) { return rank; }
  struct ServedBefore {
    using is_transparent = void;
    bool operator()(const auto& a, const auto& b) const { return rank(a) < rank(b); }
  };
  /// Those for whom this is the same take turns, in the order of Request::turn.
  using Equals = std::tuple<bool, ServiceClass, int32_t>;
  static Equals equals(const Request* request);
  struct TurnBefore {
    bool operator()(const Request* a, const Request* b) const;
  };
  struct OpenChunk {
    Request* request = nullptr;
    uint32_t epoch = 0;
    double due_s = 0;   // before it was planned
    uint64_t turn = 0;  // likewise
    StepChunk chunk;
  };
  struct OpenStep {
    uint64_t id = 0;
    std::vector<OpenChunk> chunks;
    std::vector<std::pair<Request*, uint32_t>> started;  // with their epochs
    StepShape shape;
    uint32_t spare_logit_rows = 0;  // that are left
    size_t n_choices = 0;           // chunks that share a row
  };
  using WaitingQueue = std::set<Request*, ServedBefore>;
  const OpenStep& open_step(uint64_t plan_id) const;
  static bool chunk_counts(const OpenChunk& chunk);

  Scheduler(const SchedulerOptions& options, KvCacheOptions cache, const CostModel& cost);

  void expire(StepPlan& plan, double now_s);
  void fail(Request& request, Error why, StepPlan& plan, double now_s);
  void fail_unfitting(StepPlan& plan, double now_s);
  void fail_stuck(StepPlan& plan, double now_s);
  double first_due_s(double now_s) const;
  double next_turn_s() const;
  void give_turns(double now_s);
  void set_turn(Request& request, bool on_turn);
  uint64_t next_round(uint64_t client, ServiceClass service_class) const;
  Request* first_that_waits(ServiceClass service_class) const;
  void start_better(StepPlan& plan, OpenStep& open, double now_s);
  void plan_decodes(StepPlan& plan, OpenStep& open, double now_s);
  void plan_prefills(StepPlan& plan, OpenStep& open, double now_s);
  bool plan_prefill(Request& request, double most_s, StepPlan& plan, OpenStep& open, double now_s);
  bool start_first(StepPlan& plan, OpenStep& open, double now_s);
  void has_started(Request& request, StepPlan& plan, OpenStep& open, double now_s);
  static bool makes_way(const Request& one, const Request& that_starts);
  std::vector<Request*> lesser_than(const Request& request) const;
  bool fits(const Request& request, std::span<Request* const> without) const;
  size_t n_read_before(const Request& request) const;
  const Request* first_prompt() const;
  uint32_t left_to(const Request& prompt, const Request& row) const;
  double most_seconds(const StepPlan& plan, double now_s) const;
  uint32_t prefill_tokens(const Request& request, const StepPlan& plan, const OpenStep& open,
                          double most_s);
  void add_chunk(Request& request, uint32_t n_tokens, bool decodes, double now_s, StepPlan& plan,
                 OpenStep& open);
  void add_choices(const Request& first, double now_s, StepPlan& plan, OpenStep& open);
  bool waits_for_prompt(const Request& choice) const;
  void release_choices();
  void has_been_scheduled(Request& request, double now_s);
  uint32_t draft_rows(const Request& request, uint32_t most);
  bool make_room(Request& request, uint32_t end, StepPlan& plan);
  void hold_room(StepPlan& plan);
  bool wants_token(const Request& request) const;
  bool can_decode(const Request& request) const;
  bool reads_prompt(const Request& request) const;
  bool wants_chunk(const Request& request) const;
  void stop_running(Request& request);
  void suspend(Request& request);
  void preempt(Request& request, StepPlan& plan);
  Request* worst_unplanned(const Request* spare) const;
  void commit_chunk(const OpenChunk& open, std::span<const uint32_t> taken, double now_s,
                    ChunkOutcome& outcome);
  void keep_rows(Request& request, const StepChunk& chunk, std::span<const uint32_t> taken);
  void keep_choice(Request& choice, uint32_t token);
  void count_tokens(Request& request, size_t n, double now_s);
  void count_token(Request& request, double now_s);
  void close(const OpenStep& open);
  uint32_t blocks_for(uint64_t n_tokens) const;
  Status check_request(const Request& request) const;
  Status check_slots() const;

  SchedulerOptions options_;
  KvCache cache_;
  CostModel cost_;
  Telemetry telemetry_;
  RequestSlots slots_;
  uint32_t draft_rows_ = std::numeric_limits<uint32_t>::max();

  RequestId next_id_ = 1;
  uint64_t next_arrival_ = 1;
  uint64_t next_turn_ = 1;
  uint64_t next_plan_ = 1;
  std::unordered_map<RequestId, std::unique_ptr<Request>> requests_;
  WaitingQueue waiting_;
  WaitingQueue choices_;           // wait for another request to read their prompt
  std::vector<Request*> running_;  // in order of service
  std::set<std::pair<double, RequestId>> deadlines_;
  std::deque<OpenStep> outstanding_;
  /// Removed while a step under way still names them, with that step's id.
  std::deque<std::pair<uint64_t, std::unique_ptr<Request>>> removed_;
  /// The request at the head of the queue did not fit, and the fewest free pages since.
  std::optional<std::pair<RequestId, uint32_t>> blocked_;
  /// By class: who is on turn, and since when the class could be served and nothing new of it was
  /// computed; infinite: there was nothing to serve.
  std::array<Request*, kServiceClasses> turns_ = {};
  std::array<double, kServiceClasses> unserved_since_s_ = {kNeverS, kNeverS, kNeverS};
  std::array<uint64_t, kServiceClasses> rounds_ = {};  ///< of a class, the latest that started
  double last_plan_s_ = kNeverS;                       ///< never: there was nothing to plan
  double next_due_s_ = 0;
};

}  // namespace pumice
