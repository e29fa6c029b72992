// Steps on a device, as a state machine that a host may drive in whatever pieces it likes: each is
// planned, its transfers and uploads are made, it is recorded (or a recording is found), its
// segments are submitted as budgets allow, and once it has run its tokens count.
//
// Two steps are under way at a time: while the device runs step N, step N + 1 is planned, recorded
// and queued behind it, and takes the tokens of step N from the device's memory. What it computes
// for a request that step N turns out to have ended is discarded.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "cache/move_bytes.hpp"
#include "engine/device_state.hpp"
#include "engine/engine_options.hpp"
#include "engine/prefix_saver.hpp"
#include "engine/replays.hpp"
#include "engine/requests.hpp"
#include "engine/step_input.hpp"
#include "engine/submitter.hpp"
#include "engine/weight_mover.hpp"
#include "vk/profiler.hpp"

namespace pumice {

/// What a step was and when its stages ended, on Engine::now().
struct StepTrace {
  uint64_t id = 0;
  uint32_t decode_rows = 0;
  uint32_t prefill_tokens = 0;
  double planned_s = 0;   ///< when planning began
  double prepared_s = 0;  ///< 0 of a replayed step; likewise the next
  double recorded_s = 0;
  double submitted_s = 0;  ///< when it was queued
  double ended_s = 0;
};

/// Stages of a step at which hooks are called.
enum class StepStage {
  kSubmit,  ///< before a step is recorded and queued
  kLand,    ///< after the device has run it, before its tokens count
};

/// What looks on, for profiles and tests.
struct StepHooks {
  vk::RecorderOptions recorder = {};  ///< how steps are recorded
  /// Called at each stage of each step; an error makes the step fail there.
  std::function<Status(StepStage)> at_stage = {};
  /// Told of each step that has ended, with its commands; none is replayed from now on.
  std::function<void(const StepTrace&, const vk::RecordedWork&)> observer = {};
};

/// Not thread-safe.
class Stepper {
 public:
  /// All must outlive it. `clock`: Engine::now. `store`: where findable pages go; null: nowhere.
  Stepper(Requests& requests, DeviceState& device, const EngineOptions& options,
          std::function<double()> clock, PrefixStore* store = nullptr);
  /// Waits for the device.
  ~Stepper();
  Stepper(const Stepper&) = delete;
  Stepper& operator=(const Stepper&) = delete;

  /// Go on without ever waiting for the device: of steps that have run, up to `max_steps` count, as
  /// many as can be under way are planned, and the next segments are submitted as far as `budget_s`
  /// allows (Submitter::submit). Errors: those of the device; every step under way is then undone.
  Status poll(double budget_s, uint32_t max_steps = Scheduler::kMaxOutstanding);
  /// Wait until the oldest step has run, and land it, or until a piece of its transfers is done;
  /// or, in a mode that submits a step in parts, until more of it can be submitted. Something is
  /// under way. Errors: as of `poll`.
  Status wait();
  /// Submitter::wait_next; nothing else changes.
  Status wait_next(std::chrono::nanoseconds most, Waker& waker) {
    return submitter_.wait_next(most, waker);
  }
  /// Wait until no transfers are under way and no pages move, and submit all that is queued: what
  /// the device is given next comes behind it. Tokens of steps that land meanwhile count. Errors:
  /// as of `poll`.
  Status settle();
  /// Undo every step under way.
  void abandon();

  bool idle() const { return steps_.empty() && !resizing() && !weights_.busy() && !saver_.busy(); }

  /// Use so much of the device's memory, whose ledger should then have `budget_bytes` at most, from
  /// `poll` to `poll`. More pages of KV memory are there at once, as far as there is memory; fewer
  /// once the steps under way have landed, and none is planned until then. Weights are copied
  /// beside steps.
  void use_memory(const DeviceState::MemoryTarget& target, uint64_t budget_bytes);
  /// KV memory is on its way.
  bool resizing() const;
  /// `poll` has something to do for that.
  bool changes_memory() const { return resizing() || weights_.has_work(); }
  /// Pages are on their way to a prefix store, or have not begun to be.
  bool saves_pages() const { return saver_.has_work(); }
  /// All is as wanted, as far as there is memory.
  bool memory_settled() const { return !resizing() && weights_.settled(); }

  /// For the steps that are planned from now on.
  void set_hooks(StepHooks hooks);
  /// Holds for what is submitted from now on.
  void set_mode(EngineMode mode) { submitter_.set_mode(mode); }
  size_t n_replays() const { return replays_.size(); }
  /// Transfers of a step are under way.
  bool moving() const { return !steps_.empty() && steps_.back().moving != nullptr; }
  const std::set<std::string>& variants() const { return variants_; }
  const vk::Profiler& profiler() const { return profiler_; }
  size_t last_barrier_count() const { return last_barrier_count_; }
  uint64_t dispatched_rows() const { return dispatched_rows_; }
  const std::deque<StepTrace>& trace() const { return trace_; }
  std::optional<PaceRates> learned_pace() const { return submitter_.learned_pace(); }
  std::vector<SliceTime> take_slice_times() { return submitter_.take_slice_times(); }

  /// For tests. Errors: kInternal when a ring has no owner, or several.
  Status check_integrity() const;

 private:
  /// A step's transfers between tiers, which must be done before it is recorded: bytes that cannot
  /// be restored cost a plan, not a step.
  struct Moving {
    explicit Moving(ByteMover bytes) : mover(std::move(bytes)) {}

    ByteMover mover;
    ByteMover::Piece piece = {};
    std::optional<KvPageStore::Move> move;  // of the piece, if it is under way
    Submitter::Ticket ticket = 0;
  };
  struct LogitsWanted {
    size_t chunk;
    uint32_t position;
    uint32_t logit_row;
  };
  /// A step under way.
  struct PendingStep {
    uint32_t ring = 0;
    StepInput input;
    std::unique_ptr<Moving> moving;  // until its transfers are done; only of the last one
    DeviceState::Recording work;
    std::shared_ptr<const ModelWeights> weights;  // that it reads
    bool is_replay = false;
    bool is_cut = false;           // not all of it was submitted: there are no results
    bool waits_for_masks = false;  // what samples is held back
    Submitter::Ticket forward_ticket = 0;
    Submitter::Ticket ticket = 0;    // of what is queued last of it
    std::vector<uint32_t> fed_from;  // by chunk: the place of a token that the host does not know
    std::vector<uint32_t> sampled_rows;  // of logits, chunk by chunk
    std::vector<LogitsWanted> logits_wanted;
    std::vector<LogitsWanted> scored;  // how probable the next token is
    StepTrace trace;
  };

  /// KV memory on its way to fewer pages (KvCache says how). Nothing else is under way.
  struct Shrinking {
    explicit Shrinking(uint32_t n) : n_pages(n) {}

    uint32_t n_pages;
    Transfers saves;  // of what is given up
    std::unique_ptr<Moving> saving;
    std::shared_ptr<const vk::RecordedWork> copies;  // of what stays
    Submitter::Ticket ticket = 0;
  };

  void drop_unwanted();
  Status plan_steps(double budget_s);
  Status submit(double budget_s);
  Result<bool> plan_step();
  uint32_t place_of_token(const StepChunk& chunk) const;
  Status move_on();
  Result<bool> carry_on(Moving& moving);
  Status resize_on();
  void grow_kv();
  void begin_shrinking();
  Result<bool> move_pages();
  void abandon_shrinking();
  Status start(PendingStep& step);
  bool is_used_before(const PendingStep& step, uint32_t slot) const;
  void set_up_slots(const PendingStep& step);
  DeviceState::StepWork write(PendingStep& step);
  void write_states(uint32_t ring, const StepChunk& chunk, const ChunkInput& input);
  void write_chunk(PendingStep& step, size_t index, DeviceState::StepWork& work);
  void write_logit_row(PendingStep& step, size_t index, uint32_t i, uint32_t logit_row,
                       DeviceState::StepWork& work);
  void write_choices(PendingStep& step, DeviceState::StepWork& work);
  Status queue(PendingStep& step, const DeviceState::StepWork& work);
  std::optional<DeviceState::Recording> replay_of(const Replays::Key& key);
  Result<DeviceState::Recording> record(PendingStep& step, const DeviceState::StepWork& work);
  double in_segments(const DeviceState::Recording& work) const;
  bool are_apart(const PendingStep& step, size_t chunk) const;
  bool replayable(const PendingStep& step, const DeviceState::StepWork& work) const;
  Status make_masks();
  Status land(double seconds);
  Result<std::vector<SampledRow>> sampled_by(const PendingStep& step) const;
  static std::vector<uint32_t> ends_that_count(const PendingStep& step,
                                               std::span<const SampledRow> sampled);
  void deliver_logits(const PendingStep& step, std::span<const uint32_t> ends);
  void deliver_hidden(const PendingStep& step, std::span<const uint32_t> ends);
  void deliver_scores(const PendingStep& step);
  Result<bool> land_oldest();
  Submitter::Ticket waited_for() const;
  Status wait_for(Submitter::Ticket copy);
  void drop_last();

  Requests& requests_;
  DeviceState& device_;
  const EngineOptions& options_;
  std::function<double()> clock_;
  StepHooks hooks_;

  Submitter submitter_;
  Replays replays_;
  std::vector<uint32_t> free_rings_;
  std::deque<PendingStep> steps_;  // oldest first
  uint32_t kv_blocks_wanted_;
  bool told_of_refusal_ = false;  // of memory to grow into: it is tried again and again
  std::optional<Shrinking> shrinking_;
  WeightMover weights_;
  PrefixSaver saver_;

  vk::Profiler profiler_;
  std::set<std::string> variants_;
  size_t last_barrier_count_ = 0;
  uint64_t dispatched_rows_ = 0;
  std::deque<StepTrace> trace_;
};

}  // namespace pumice
