#include "engine/stepper.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace pumice {
namespace {

constexpr size_t kTraceSteps = 4096;

}  // namespace

Stepper::Stepper(Requests& requests, DeviceState& device, const EngineOptions& options,
                 std::function<double()> clock, PrefixStore* store)
    : requests_(requests),
      device_(device),
      options_(options),
      clock_(std::move(clock)),
      submitter_(device.device(), Submitter::kLongestSlice_s, options.pace),
      kv_blocks_wanted_(device.kv().n_pages()),
      weights_(device.device(), device.placement(), submitter_, options.logger),
      saver_(store, requests.scheduler().cache(), device.pages(), submitter_,
             device.stored_pages()) {
  for (uint32_t ring = 0; ring < device_.n_rings(); ++ring) free_rings_.push_back(ring);
  device_.pages().follow(&submitter_);
}

Stepper::~Stepper() {
  device_.device()->wait_idle();
  device_.pages().follow(nullptr);
}

void Stepper::set_hooks(StepHooks hooks) {
  hooks_ = std::move(hooks);
  replays_.clear();  // recorded otherwise, perhaps
}

/// Steps are planned before those that have run are looked at: the device should have work while
/// the host is busy with their tokens.
Status Stepper::poll(double budget_s, uint32_t max_steps) {
  drop_unwanted();
  if (const Status moved = weights_.go_on(budget_s); !moved.ok()) {
    abandon();
    return moved;
  }
  if (device_.follow_weights()) replays_.clear();  // they read where the weights were
  // Pages that go are not read any more.
  if (const Status saved = resizing() ? saver_.land() : saver_.go_on(); !saved.ok()) {
    abandon();
    return saved;
  }
  PUMICE_TRY_STATUS(plan_steps(budget_s));
  for (uint32_t n = 0; n < max_steps; ++n) {
    PUMICE_TRY(const bool landed, land_oldest());
    if (!landed) break;
    PUMICE_TRY_STATUS(plan_steps(budget_s));
  }
  return {};
}

/// What is not yet submitted of steps whose requests have all ended (cancelled, most likely) never
/// is. They keep their memory until the rest has run. A profile or an observer gets whole steps.
void Stepper::drop_unwanted() {
  if (options_.profile || hooks_.observer) return;
  for (PendingStep& step : steps_) {
    if (step.moving || requests_.is_wanted(step.input.plan)) continue;
    for (const Submitter::Ticket ticket : {step.forward_ticket, step.ticket}) {
      step.is_cut = submitter_.drop_rest(ticket) || step.is_cut;
    }
    if (step.is_cut) step.waits_for_masks = false;
  }
}

/// Masks are made while the device works on what comes before them.
Status Stepper::submit(double budget_s) {
  Status submitted = submitter_.submit(budget_s);
  if (submitted.ok() && !steps_.empty() && steps_.front().waits_for_masks) {
    PUMICE_TRY_STATUS(make_masks());
    submitted = submitter_.submit(budget_s);
  }
  if (!submitted.ok()) abandon();
  return submitted;
}

/// Of the oldest step, if it waits for them: the tokens before its own are known.
Status Stepper::make_masks() {
  if (steps_.empty() || !steps_.front().waits_for_masks) return {};
  PendingStep& step = steps_.front();
  requests_.make_masks(step.input, clock_(),
                       [&](size_t chunk, uint32_t row, std::span<const uint32_t> mask) {
                         size_t before = 0;
                         for (size_t i = 0; i < chunk; ++i)
                           before += step.input.plan.chunks[i].n_samples;
                         device_.write_mask(step.ring, step.sampled_rows[before + row], mask);
                       });
  step.waits_for_masks = false;
  const Status released = submitter_.release(step.ticket);
  if (!released.ok()) abandon();
  return released;
}

// ---- from a plan to queued work

/// Each is submitted before the next is planned: the device should not wait for both.
Status Stepper::plan_steps(double budget_s) {
  if (moving()) PUMICE_TRY_STATUS(move_on());
  if (resizing()) PUMICE_TRY_STATUS(resize_on());
  PUMICE_TRY_STATUS(submit(budget_s));
  if (resizing()) return {};
  // Behind a step whose transfers are under way nothing is planned: it may yet come to nothing.
  while (!moving() && !free_rings_.empty()) {
    PUMICE_TRY(const bool planned, plan_step());
    if (!planned) break;
    PUMICE_TRY_STATUS(submit(budget_s));
  }
  return {};
}

/// False: there is nothing to do.
Result<bool> Stepper::plan_step() {
  PendingStep& step = steps_.emplace_back();
  step.ring = free_rings_.back();
  free_rings_.pop_back();
  step.trace.planned_s = clock_();
  step.input = requests_.plan(step.trace.planned_s,
                              [this](uint32_t slot) { return device_.is_set_up(slot); });
  if (step.input.plan.empty()) {
    drop_last();
    return false;
  }
  for (size_t i = 0; i < step.input.chunks.size(); ++i) {
    const StepChunk& chunk = step.input.plan.chunks[i];
    const bool is_known = step.input.chunks[i].tokens.size() == chunk.n_tokens;
    step.fed_from.push_back(is_known ? 0 : place_of_token(chunk));
  }
  if (step.input.plan.transfers.empty()) {
    PUMICE_TRY_STATUS(start(step));
    return true;
  }
  step.moving =
      std::make_unique<Moving>(ByteMover(requests_.scheduler().cache(), step.input.plan.transfers,
                                         device_.pages().max_items(), options_.logger));
  PUMICE_TRY_STATUS(move_on());
  return true;
}

/// Where the step before the last planned one puts the token that its request goes on with.
uint32_t Stepper::place_of_token(const StepChunk& next) const {
  for (auto step = steps_.rbegin() + 1; step != steps_.rend(); ++step) {
    size_t n_rows = 0;
    for (const StepChunk& chunk : step->input.plan.chunks) {
      n_rows += chunk.n_samples;
      if (chunk.request != next.request || chunk.n_samples == 0) continue;
      return device_.sampled_place(step->ring, step->sampled_rows[n_rows - 1]);
    }
  }
  PUMICE_CHECK(false, "a row goes on with a token that no step under way samples");
  return 0;
}

/// The last step comes to nothing.
void Stepper::drop_last() {
  free_rings_.push_back(steps_.back().ring);
  steps_.pop_back();
}

/// Carry transfers on as far as that needs no waiting; whether they are done. On an error they are
/// no more, like all that was under way.
Result<bool> Stepper::carry_on(Moving& moving) {
  using Kind = ByteMover::Piece::Kind;
  while (true) {
    if (moving.move) {
      // The step before lands first: of what came before work that has ended nothing is told.
      if (steps_.size() > 1) return false;
      const Result<std::optional<double>> ended = submitter_.ended(moving.ticket);
      if (!ended.ok()) {
        abandon();
        return ended.error();
      }
      if (!ended->has_value()) return false;
      if (moving.piece.kind == Kind::kRead) KvPageStore::take(*moving.move, moving.piece.items);
      moving.move.reset();
      moving.mover.finish_piece({});
    }
    moving.piece = moving.mover.next();
    if (moving.piece.kind == Kind::kDone) return true;
    Result<KvPageStore::Move> move = moving.piece.kind == Kind::kRead
                                         ? device_.pages().record_read(moving.piece.items)
                                         : device_.pages().record_write(moving.piece.items);
    if (!move.ok()) {
      moving.mover.finish_piece(move.error());
      continue;
    }
    moving.move = std::move(move).value();
    moving.ticket = submitter_.add(moving.move->work);
  }
}

/// Carry the last step's transfers on; when they are done, start it, or drop it if nothing is left
/// of it.
Status Stepper::move_on() {
  PendingStep& step = steps_.back();
  PUMICE_TRY(const bool done, carry_on(*step.moving));
  if (!done) return {};
  const TransferFailures failures = step.moving->mover.take_failures();
  step.moving.reset();
  if (!requests_.finish_transfers(step.input.plan, failures)) {
    drop_last();
    return {};
  }
  return start(step);
}

/// The last step's transfers are done: record it and queue it. On an error it is undone.
Status Stepper::start(PendingStep& step) {
  set_up_slots(step);
  const DeviceState::StepWork work = write(step);
  Status status = queue(step, work);
  if (status.ok()) {
    device_.commit_slots();
    return {};
  }
  device_.drop_slots();
  requests_.rollback(step.input.plan.id);
  drop_last();
  return status;
}

/// Steps whose rows are all attended one by one are recorded once. A replay's declared costs are those
/// of the step that was recorded.
bool Stepper::replayable(const PendingStep& step, const DeviceState::StepWork& work) const {
  if (!work.samples || work.reads_logits || options_.profile || hooks_.observer) return false;
  for (size_t i = 0; i < step.input.chunks.size(); ++i) {
    if (step.input.plan.chunks[i].shares_row || !are_apart(step, i)) return false;
  }
  return true;
}

double Stepper::in_segments(const DeviceState::Recording& work) const {
  const double forward = submitter_.in_segments(*work.forward);
  return work.sampling != nullptr ? forward + submitter_.in_segments(*work.sampling) : forward;
}

/// Nothing if there is none, or if it would be recorded otherwise by now.
std::optional<DeviceState::Recording> Stepper::replay_of(const Replays::Key& key) {
  const Replays::Recording* recording = replays_.find(key);
  if (recording == nullptr) return std::nullopt;
  const DeviceState::Recording& work = recording->work;
  if (submitter_.times_segments() && !work.forward->times_segments()) return std::nullopt;
  const bool stays =
      Replays::stays(recording->in_segments, in_segments(work), work.forward->segments().size());
  return stays ? std::optional(work) : std::nullopt;
}

Result<DeviceState::Recording> Stepper::record(PendingStep& step,
                                               const DeviceState::StepWork& work) {
  step.trace.prepared_s = clock_();
  vk::RecorderOptions options = hooks_.recorder;
  options.timestamps = options_.profile;
  submitter_.set_segments(options);
  const bool in_one = options_.profile || hooks_.observer;
  PUMICE_TRY(DeviceState::Recording recorded, device_.record(step.ring, work, options, in_one));
  step.trace.recorded_s = clock_();
  last_barrier_count_ = 0;
  for (const auto& part : {recorded.forward, recorded.sampling}) {
    if (part == nullptr) continue;
    for (const vk::CommandInfo& command : part->commands()) variants_.emplace(command.label);
    last_barrier_count_ += part->barrier_count();
  }
  return recorded;
}

Status Stepper::queue(PendingStep& step, const DeviceState::StepWork& work) {
  if (hooks_.at_stage) PUMICE_TRY_STATUS(hooks_.at_stage(StepStage::kSubmit));
  step.weights = device_.weights();
  PUMICE_TRY(const auto prologue, device_.record_prologue(step.input.plan.transfers.copies));
  const StepArgs& args = device_.args(step.ring);
  const Replays::Key key{.ring = step.ring,
                         .n_rows = args.n_rows,
                         .n_logit_rows = args.n_logit_rows,
                         .n_chunks = args.n_chunks,
                         .chunk_rows = args.chunk_rows,
                         .split_classes = Decoder::split_classes(args),
                         .adapts = args.adapts,
                         .greedy_only = work.greedy_only,
                         .log_probs = work.log_probs};
  const bool may_replay =
      replayable(step, work) && device_.decoder().rows_fit(args, submitter_.segment_limit());
  std::optional<DeviceState::Recording> replayed;
  if (may_replay) replayed = replay_of(key);
  step.is_replay = replayed.has_value();
  if (replayed) {
    step.work = *std::move(replayed);
  } else {
    PUMICE_TRY(step.work, record(step, work));
    if (may_replay) replays_.add(key, {step.work, in_segments(step.work)});
  }
  if (prologue) submitter_.add(prologue);
  step.ticket = step.forward_ticket = submitter_.add(step.work.forward);
  if (step.work.sampling) {
    step.ticket = submitter_.add(step.work.sampling, Submitter::Lesson::kPace, step.forward_ticket);
  }
  step.waits_for_masks = Requests::wants_masks(step.input);
  if (step.waits_for_masks) submitter_.hold(step.ticket);
  step.trace.id = step.input.plan.id;
  step.trace.decode_rows = step.input.plan.shape.decode_rows;
  step.trace.prefill_tokens = step.input.plan.shape.prefill_tokens;
  step.trace.submitted_s = clock_();
  dispatched_rows_ += args.n_rows;
  return {};
}

// ---- what has run

/// Whether it had run.
Result<bool> Stepper::land_oldest() {
  if (steps_.empty() || steps_.front().moving) return false;
  const Result<std::optional<double>> ended = submitter_.ended(steps_.front().ticket);
  if (!ended.ok()) {
    abandon();
    return ended.error();
  }
  if (!ended->has_value()) return false;
  PUMICE_TRY_STATUS(land(**ended));
  return true;
}

/// What has to end for anything to go on.
Submitter::Ticket Stepper::waited_for() const {
  if (steps_.empty()) return shrinking_->saving ? shrinking_->saving->ticket : shrinking_->ticket;
  const PendingStep& oldest = steps_.front();
  return oldest.moving ? oldest.moving->ticket : oldest.ticket;
}

/// A copy that no step waits for.
Status Stepper::wait_for(Submitter::Ticket copy) {
  Result<bool> ended = submitter_.has_ended(copy);
  Status status = !ended.ok() ? Status(ended.error()) : *ended ? Status() : submitter_.wait(copy);
  if (!status.ok()) abandon();
  return status;
}

Status Stepper::wait() {
  if (steps_.empty() && !shrinking_ && saver_.busy()) return wait_for(saver_.ticket());
  if (steps_.empty() && !shrinking_ && weights_.busy()) return wait_for(weights_.ticket());
  PUMICE_CHECK(!steps_.empty() || shrinking_, "nothing is under way");
  PUMICE_TRY_STATUS(make_masks());
  const Status waited = submitter_.wait(waited_for());
  if (!waited.ok()) {
    abandon();
    return waited;
  }
  PUMICE_TRY_STATUS(land_oldest());
  // The next one's masks are made while the device works on it, before anyone looks at the tokens.
  const bool wait_for_masks = !steps_.empty() && steps_.front().waits_for_masks;
  return wait_for_masks ? submit(Submitter::kNoBudget) : Status();
}

Status Stepper::settle() {
  drop_unwanted();
  while (moving() || shrinking_) {
    if (moving() || shrinking_->saving || shrinking_->copies) PUMICE_TRY_STATUS(wait());
    if (moving()) {
      PUMICE_TRY_STATUS(move_on());
    } else if (shrinking_) {
      PUMICE_TRY_STATUS(resize_on());
    }
  }
  PUMICE_TRY_STATUS(make_masks());
  while (std::ranges::any_of(steps_, &PendingStep::waits_for_masks)) PUMICE_TRY_STATUS(wait());
  const Status submitted = submitter_.submit_all();
  if (!submitted.ok()) abandon();
  return submitted;
}

/// By its sampling rows, in order. What a device says is not believed: an index that it got wrong
/// would lead anywhere. Behind a row of a draft that chose something else nothing was chosen.
Result<std::vector<SampledRow>> Stepper::sampled_by(const PendingStep& step) const {
  std::vector<SampledRow> sampled;
  sampled.reserve(step.sampled_rows.size());
  for (size_t i = 0; i < step.input.chunks.size(); ++i) {
    const StepChunk& chunk = step.input.plan.chunks[i];
    const auto draft = std::span(step.input.chunks[i].tokens).last(chunk.n_draft());
    bool agrees = true;
    for (uint32_t n = 0; n < chunk.n_samples; ++n) {
      SampledRow& row = sampled.emplace_back();
      if (step.is_cut || !agrees) continue;
      const uint32_t logit_row = step.sampled_rows[sampled.size() - 1];
      row.token = device_.sampled(step.ring, logit_row);
      if (const auto n_best = step.input.chunks[i].sampling.log_probs) {
        row.log_probs = device_.log_probs(step.ring, logit_row, *n_best);
      }
      if (row.token >= device_.program().n_vocab) {
        return device_.device()->faulty(
            fmt::format("chose token {} of {}", row.token, device_.program().n_vocab));
      }
      agrees = n < draft.size() && row.token == draft[n];
    }
  }
  return sampled;
}

/// Of the positions of its chunks, without rows of a draft that do not count.
std::vector<uint32_t> Stepper::ends_that_count(const PendingStep& step,
                                               std::span<const SampledRow> sampled) {
  std::vector<uint32_t> ends;
  for (size_t i = 0; i < step.input.chunks.size(); ++i) {
    const StepChunk& chunk = step.input.plan.chunks[i];
    const auto rows = sampled.first(chunk.n_samples);
    sampled = sampled.subspan(chunk.n_samples);
    const uint32_t n_refused =
        chunk.n_samples - Requests::n_agreed(chunk, step.input.chunks[i], rows);
    ends.push_back(chunk.first_position + chunk.n_tokens - n_refused);
  }
  return ends;
}

void Stepper::deliver_logits(const PendingStep& step, std::span<const uint32_t> ends) {
  for (const LogitsWanted& wanted : step.logits_wanted) {
    if (wanted.position >= ends[wanted.chunk]) continue;
    requests_.deliver_logits(step.input.plan.chunks[wanted.chunk].request, wanted.position,
                             device_.logits(step.ring, wanted.logit_row));
  }
}

void Stepper::deliver_hidden(const PendingStep& step, std::span<const uint32_t> ends) {
  uint32_t row = 0;
  for (size_t i = 0; i < step.input.chunks.size(); ++i) {
    const StepChunk& chunk = step.input.plan.chunks[i];
    const ChunkInput& input = step.input.chunks[i];
    if (chunk.shares_row) continue;
    for (uint32_t n = 0; n < chunk.n_tokens; ++n, ++row) {
      const uint32_t position = chunk.first_position + n;
      if (!input.wants_hidden || position >= ends[i]) continue;
      requests_.deliver_hidden(chunk.request, position, input.tokens[n],
                               device_.hidden(step.ring, row));
    }
  }
}

void Stepper::deliver_scores(const PendingStep& step) {
  for (const LogitsWanted& scored : step.scored) {
    const ChunkInput& input = step.input.chunks[scored.chunk];
    const StepChunk& chunk = step.input.plan.chunks[scored.chunk];
    requests_.deliver_score(
        chunk.request, scored.position + 1, input.scored[scored.position - chunk.first_position],
        device_.log_probs(step.ring, scored.logit_row, input.sampling.log_probs.value_or(0)));
  }
}

/// The oldest step has run: its tokens count.
Status Stepper::land(double seconds) {
  Status status;
  if (options_.profile) status = profiler_.add(*steps_.front().work.forward);
  if (status.ok() && hooks_.at_stage) status = hooks_.at_stage(StepStage::kLand);
  Result<std::vector<SampledRow>> sampled = std::vector<SampledRow>();
  if (status.ok()) {
    sampled = sampled_by(steps_.front());
    if (!sampled.ok()) status = sampled.error();
  }
  if (!status.ok()) {
    abandon();
    return status;
  }
  PendingStep step = std::move(steps_.front());
  steps_.pop_front();
  free_rings_.push_back(step.ring);
  step.trace.ended_s = clock_();
  trace_.push_back(step.trace);
  if (trace_.size() > kTraceSteps) trace_.pop_front();
  if (hooks_.observer && !step.is_replay) hooks_.observer(step.trace, *step.work.forward);
  if (!step.is_cut) {
    const std::vector<uint32_t> ends = ends_that_count(step, *sampled);
    deliver_logits(step, ends);
    deliver_hidden(step, ends);
    deliver_scores(step);
  }
  requests_.commit(step.input, *sampled, step.trace.ended_s, seconds);
  return {};
}

void Stepper::abandon() {
  device_.device()->wait_idle();  // part of them may run
  submitter_.clear();
  abandon_shrinking();
  weights_.abandon();
  saver_.abandon();
  if (steps_.empty()) return;
  if (moving()) {
    TransferFailures failures;
    failures.all = true;
    (void)requests_.finish_transfers(steps_.back().input.plan, failures);
  }
  requests_.rollback(steps_.front().input.plan.id);
  while (!steps_.empty()) drop_last();
  // What they sampled may have been counted for penalties: every slot is set up anew.
  device_.forget_all();
}

Status Stepper::check_integrity() const {
  std::vector<uint32_t> owners(device_.n_rings());
  for (const uint32_t ring : free_rings_) ++owners[ring];
  for (const PendingStep& step : steps_) ++owners[step.ring];
  if (!std::ranges::all_of(owners, [](uint32_t n) { return n == 1; })) {
    return make_error(ErrorCode::kInternal, "a ring has no owner, or several");
  }
  return {};
}

}  // namespace pumice
