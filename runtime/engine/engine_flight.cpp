// Engine: steps under way, from their launch to their landing.
#include <algorithm>

#include "engine/engine.hpp"
#include "engine/engine_limits.hpp"

namespace pumice {
namespace {

constexpr size_t kTraceSteps = 4096;

}  // namespace

void Engine::free_slot(ActiveRequest& active) {
  if (!active.slot) return;
  if (flights_.empty()) {
    free_slots_.push_back(*active.slot);
  } else {
    cooling_slots_.emplace_back(flights_.back().plan.id, *active.slot);
  }
  active.slot.reset();
}

/// Slots of requests that no longer run as they did when they got them.
void Engine::free_stale_slots() {
  for (auto& [id, active] : requests_) {
    const Request& scheduled = scheduler_->request(id);
    if (active.slot && (!scheduled.running() || scheduled.epoch != active.epoch)) free_slot(active);
  }
}

Result<bool> Engine::launch() {
  Flight flight;
  while (true) {
    flight = {};
    flight.trace.planned_s = now();
    flight.plan = scheduler_->plan_step(flight.trace.planned_s);
    for (const RequestId id : flight.plan.ended) {
      const uint32_t computed = scheduler_->request(id).computed_tokens;
      events_.push_back(
          {.request = id, .computed_tokens = computed, .finished = true, .report = release(id)});
    }
    for (const RequestId id : flight.plan.preempted) free_slot(requests_.at(id));
    if (flight.plan.empty()) return false;
    if (flight.plan.transfers.empty()) break;
    TransferFailures failures;
    const Status moved = move_blocks(flight, failures);
    failures.all = !moved.ok();
    const bool valid = scheduler_->finish_transfers(flight.plan, failures);
    if (!moved.ok()) {
      if (valid) scheduler_->rollback(flight.plan.id);
      free_stale_slots();
      return moved.error();
    }
    if (valid) break;
    free_stale_slots();
  }
  flight.ring = free_rings_.back();
  Status status = prepare(flight);
  if (status.ok()) status = submit(flight);
  if (!status.ok()) {
    device_->wait_idle();  // part of it may run, and what it reads is about to be written again
    scheduler_->rollback(flight.plan.id);
    free_stale_slots();
    return status.error();
  }
  free_rings_.pop_back();
  flights_.push_back(std::move(flight));
  return true;
}

/// Blocks that the plan moves between tiers and copies. What comes later on the device's queue sees
/// them in place.
Status Engine::move_blocks(Flight& flight, TransferFailures& failures) {
  const Transfers& transfers = flight.plan.transfers;
  failures = move_bytes(scheduler_->cache(), transfers, *block_store_, options_.logger);
  if (transfers.copies.empty()) return {};
  PUMICE_TRY(flight.copies, block_store_->record_copies(transfers.copies));
  PUMICE_TRY_STATUS(submitter_.submit(*flight.copies));
  return {};
}

/// A bit for each attention class some rows of which are split.
uint32_t Engine::classes_that_reduce(const Flight& flight) {
  uint32_t bits = 0;
  for (size_t i = 0; i < flight.attention.size(); ++i) {
    if (!flight.attention[i].reduce_items.empty()) bits |= 1u << i;
  }
  return bits;
}

Status Engine::submit(Flight& flight) {
  if (fault_) PUMICE_TRY_STATUS(fault_(StepStage::kSubmit));
  const Replays::Key key{.ring = flight.ring,
                         .n_rows = flight.n_rows,
                         .n_logit_rows = flight.n_logit_rows,
                         .reduces = classes_that_reduce(flight),
                         .greedy_only = flight.greedy_only};
  // A replay's declared costs are those of the step that was recorded.
  const bool replayable = flight.replayable && flight.samples && !options_.profile && !observer_;
  const vk::RecordedWork* work = replayable ? replays_.find(key) : nullptr;
  if (work == nullptr) {
    flight.trace.prepared_s = now();
    PUMICE_TRY(vk::RecordedWork recorded, record(flight));
    flight.trace.recorded_s = now();
    for (const vk::CommandInfo& command : recorded.commands()) variants_.emplace(command.label);
    last_barrier_count_ = recorded.barrier_count();
    work = replayable ? &replays_.add(key, std::move(recorded))
                      : &flight.work.emplace(std::move(recorded));
  }
  PUMICE_TRY(flight.ticket, submitter_.submit(*work));
  flight.trace.id = flight.plan.id;
  flight.trace.decode_rows = flight.plan.shape.decode_rows;
  flight.trace.prefill_tokens = flight.plan.shape.prefill_tokens;
  flight.trace.submitted_s = now();
  dispatched_rows_ += flight.n_rows;
  return {};
}

/// The seconds it took (Submitter::wait).
Result<double> Engine::wait(const Flight& flight) {
  PUMICE_TRY(const double seconds, submitter_.wait(flight.ticket));
  if (options_.profile && flight.work) PUMICE_TRY_STATUS(profiler_.add(*flight.work));
  if (fault_) PUMICE_TRY_STATUS(fault_(StepStage::kLand));
  return seconds;
}

/// The oldest step under way failed: undo it and those behind it, which go on from it.
void Engine::abandon_flights() {
  device_->wait_idle();  // those behind it may run
  scheduler_->rollback(flights_.front().plan.id);
  for (const Flight& flight : flights_) free_rings_.push_back(flight.ring);
  flights_.clear();
  // What they sampled may have been counted for penalties: every request is set up anew.
  for (auto& [id, active] : requests_) {
    if (active.slot) free_slot(active);
  }
  for (const auto& [plan_id, slot] : cooling_slots_) free_slots_.push_back(slot);
  cooling_slots_.clear();
}

Status Engine::land() {
  const Result<double> seconds = wait(flights_.front());
  if (!seconds.ok()) {
    abandon_flights();
    return seconds.error();
  }
  Flight flight = std::move(flights_.front());
  flights_.pop_front();
  const uint64_t plan_id = flight.plan.id;
  free_rings_.push_back(flight.ring);
  while (!cooling_slots_.empty() && cooling_slots_.front().first <= plan_id) {
    free_slots_.push_back(cooling_slots_.front().second);
    cooling_slots_.pop_front();
  }
  flight.trace.ended_s = now();
  trace_.push_back(flight.trace);
  if (observer_ && flight.work) observer_(flight.trace, *flight.work);
  if (trace_.size() > kTraceSteps) trace_.pop_front();

  deliver_logits(flight);
  const auto sampled = StepArgs::host<uint32_t>(rings_[flight.ring].sampled_readback);
  std::vector<uint32_t> tokens;
  for (size_t i = 0; i < flight.plan.chunks.size(); ++i) {
    if (flight.plan.chunks[i].samples) tokens.push_back(sampled[flight.slots[i]]);
  }
  const std::vector<ChunkOutcome> outcomes =
      scheduler_->commit(plan_id, tokens, flight.trace.ended_s, *seconds);
  size_t next_token = 0;
  for (size_t i = 0; i < outcomes.size(); ++i) {
    const StepChunk& chunk = flight.plan.chunks[i];
    const uint32_t token = chunk.samples ? tokens[next_token++] : 0;
    if (!outcomes[i].counts) continue;
    const auto it = requests_.find(chunk.request);
    PUMICE_CHECK(it != requests_.end(), "an outcome of a request nobody knows");
    ActiveRequest& active = it->second;
    StepEvent event{.request = chunk.request,
                    .computed_tokens = chunk.first_position + chunk.n_tokens};
    if (outcomes[i].sampled) {
      event.token = token;
      active.tokens.push_back(token);
      ++active.n_generated;
      if (active.request.ends && active.request.ends(token)) {
        scheduler_->end(chunk.request, EndReason::kStop, flight.trace.ended_s);
      }
    }
    event.finished = scheduler_->request(chunk.request).ended();
    if (event.finished) {
      event.report = release(chunk.request);
    } else if (active.tokens.size() > options_.context_tokens) {
      shift_window(chunk.request, active);
    }
    events_.push_back(event);
  }
  return {};
}

Result<std::vector<StepEvent>> Engine::step() {
  // Events that a step before this one left when it failed go first. A step whose requests have all
  // ended meanwhile brings nothing.
  while (events_.empty()) {
    while (flights_.size() < depth()) {
      PUMICE_TRY(const bool launched, launch());
      if (!launched) break;
    }
    if (flights_.empty()) break;
    PUMICE_TRY_STATUS(land());
  }
  return std::exchange(events_, {});
}

Status Engine::check_integrity() const {
  PUMICE_TRY_STATUS(scheduler_->check_integrity());
  std::vector<uint32_t> slot_owners(n_slots_), ring_owners(rings_.size());
  for (const uint32_t slot : free_slots_) ++slot_owners[slot];
  for (const auto& [plan_id, slot] : cooling_slots_) ++slot_owners[slot];
  for (const auto& [id, active] : requests_) {
    if (active.slot) ++slot_owners[*active.slot];
  }
  for (const uint32_t ring : free_rings_) ++ring_owners[ring];
  for (const Flight& flight : flights_) {
    ++ring_owners[flight.ring];
    for (const uint32_t slot : flight.slots) {
      if (std::ranges::find(free_slots_, slot) != free_slots_.end()) {
        return make_error(ErrorCode::kInternal, "slot {} is free while step {} may write it", slot,
                          flight.plan.id);
      }
    }
  }
  const auto is_one = [](uint32_t owners) { return owners == 1; };
  if (!std::ranges::all_of(slot_owners, is_one) || !std::ranges::all_of(ring_owners, is_one)) {
    return make_error(ErrorCode::kInternal, "a slot or ring has no owner, or several");
  }
  return {};
}

}  // namespace pumice
