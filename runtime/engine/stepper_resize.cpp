// Stepper: KV memory that grows and shrinks between steps, weights that move beside them.
#include <utility>

#include "engine/stepper.hpp"

namespace pumice {

void Stepper::use_memory(const DeviceState::MemoryTarget& target, uint64_t budget_bytes) {
  kv_blocks_wanted_ = target.kv_blocks;
  device_.placement().want(&device_, target.weight_pieces, budget_bytes);
  weights_.try_again();
}

bool Stepper::resizing() const {
  return shrinking_.has_value() || kv_blocks_wanted_ != device_.kv().n_pages();
}

/// Go on as far as that needs no waiting.
Status Stepper::resize_on() {
  while (resizing()) {
    if (!shrinking_ && kv_blocks_wanted_ > device_.kv().n_pages()) {
      grow_kv();
      continue;
    }
    if (!steps_.empty() || saver_.busy()) return {};
    if (!shrinking_) begin_shrinking();
    if (shrinking_->saving) {
      PUMICE_TRY(const bool saved, carry_on(*shrinking_->saving));
      if (!saved) return {};
      const TransferFailures failures = shrinking_->saving->mover.take_failures();
      shrinking_->saving.reset();
      const TransferBatch batch = std::exchange(shrinking_->saves, {}).batch;
      (void)requests_.scheduler().cache().finish_transfers(batch, failures);  // saves only
    }
    PUMICE_TRY(const bool moved, move_pages());
    if (!moved) return {};
    const uint32_t n_pages = shrinking_->n_pages;
    shrinking_.reset();
    // Where pages were taken meanwhile it begins again.
    if (!requests_.scheduler().cache().resize(n_pages)) continue;
    PUMICE_TRY_STATUS(device_.kv().resize(n_pages));
  }
  return {};
}

/// As far as there is memory.
void Stepper::grow_kv() {
  const Status grown = device_.kv().resize(kv_blocks_wanted_);
  kv_blocks_wanted_ = device_.kv().n_pages();
  PUMICE_CHECK(requests_.scheduler().cache().resize(kv_blocks_wanted_), "a cache that grows");
  if (!grown.ok() && !std::exchange(told_of_refusal_, true)) {
    options_.logger.warning("KV memory could grow to only {} of {} blocks: {}", kv_blocks_wanted_,
                            device_.kv().most_pages(), grown.error().message);
  }
  if (grown.ok()) told_of_refusal_ = false;
}

void Stepper::begin_shrinking() {
  Scheduler& scheduler = requests_.scheduler();
  shrinking_.emplace(kv_blocks_wanted_);
  scheduler.give_up_pages(kv_blocks_wanted_);
  shrinking_->saves = scheduler.cache().take_transfers();
  if (shrinking_->saves.empty()) return;
  shrinking_->saving = std::make_unique<Moving>(ByteMover(
      scheduler.cache(), shrinking_->saves, device_.pages().max_items(), options_.logger));
}

/// Copy what stays out of the pages that go, some at a time; whether all of it was.
Result<bool> Stepper::move_pages() {
  KvCache& cache = requests_.scheduler().cache();
  while (true) {
    if (shrinking_->copies) {
      const Result<std::optional<double>> ended = submitter_.ended(shrinking_->ticket);
      if (!ended.ok()) {
        abandon();
        return ended.error();
      }
      if (!ended->has_value()) return false;
      shrinking_->copies.reset();
      cache.finish_moves(true);
      device_.forget_all();  // running requests' tables name the old pages
    }
    const std::vector<PageMove> moves =
        cache.take_moves(shrinking_->n_pages, device_.pages().max_items());
    if (moves.empty()) return true;
    Result<std::shared_ptr<const vk::RecordedWork>> work = device_.pages().record_moves(moves);
    if (!work.ok()) {
      abandon_shrinking();
      return work.error();
    }
    shrinking_->copies = std::move(work).value();
    shrinking_->ticket = submitter_.add(shrinking_->copies);
  }
}

/// It begins again with the next poll.
void Stepper::abandon_shrinking() {
  if (!shrinking_) return;
  KvCache& cache = requests_.scheduler().cache();
  if (shrinking_->saving) {
    TransferFailures failures;
    failures.all = true;
    (void)cache.finish_transfers(shrinking_->saves.batch, failures);
  }
  cache.finish_moves(false);
  shrinking_.reset();
}

}  // namespace pumice
