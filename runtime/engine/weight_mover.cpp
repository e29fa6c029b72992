#include "engine/weight_mover.hpp"

#include <algorithm>
#include <utility>

namespace pumice {
namespace {

// Slower than most buses, so that copies keep within budgets that know the device's own memory
// only; and no more at a time than a step can wait for.
constexpr double kBytesPerSecond = 2e9;
constexpr uint64_t kFewestBytes = uint64_t{64} << 10;
constexpr uint64_t kMostBytes = uint64_t{8} << 20;

uint64_t bytes_within(double budget_s) {
  const double bytes = std::min(budget_s * kBytesPerSecond, static_cast<double>(kMostBytes));
  return std::max(static_cast<uint64_t>(bytes), kFewestBytes) / 256 * 256;
}

}  // namespace

Status WeightMover::go_on(double budget_s) {
  if (copy_ != nullptr) {
    PUMICE_TRY(const bool landed, land());
    if (!landed) return {};
  }
  if (move_ == nullptr && !refused_) PUMICE_TRY_STATUS(begin());
  if (move_ == nullptr) return {};
  return queue(bytes_within(budget_s));
}

/// Whether the copy has ended; the last one ends the move.
Result<bool> WeightMover::land() {
  PUMICE_TRY(const bool ended, submitter_.has_ended(ticket_));
  if (!ended) return false;
  copy_.reset();
  if (next_copy_ == move_->copies.size()) {
    placement_.finish(*move_);
    move_.reset();
  }
  return true;
}

Status WeightMover::begin() {
  next_copy_ = 0;
  copied_bytes_ = 0;
  Result<std::unique_ptr<WeightPlacement::Move>> begun = placement_.begin();
  if (begun.ok()) {
    move_ = std::move(begun).value();
    if (move_ != nullptr) told_of_refusal_ = false;
    return {};
  }
  if (begun.error().code != ErrorCode::kDoesNotFit) return begun.error();
  refused_ = true;
  if (!std::exchange(told_of_refusal_, true)) {
    logger_.warning("weights stay where they are: {}", begun.error().message);
  }
  return {};
}

Status WeightMover::queue(uint64_t most_bytes) {
  vk::Recorder recorder(device_);
  while (most_bytes > 0 && next_copy_ < move_->copies.size()) {
    const WeightPlacement::Move::Copy& copy = move_->copies[next_copy_];
    const uint64_t bytes = std::min(most_bytes, copy.source.size_bytes - copied_bytes_);
    recorder.copy(copy.source.subrange(copied_bytes_, bytes),
                  copy.target.subrange(copied_bytes_, bytes));
    most_bytes -= bytes;
    copied_bytes_ += bytes;
    if (copied_bytes_ < copy.source.size_bytes) continue;
    ++next_copy_;
    copied_bytes_ = 0;
  }
  Result<vk::RecordedWork> work = recorder.finish();
  if (!work.ok()) {
    move_.reset();
    return work.error();
  }
  copy_ = std::make_shared<const vk::RecordedWork>(std::move(work).value());
  ticket_ = submitter_.add(copy_, Submitter::Lesson::kNone);
  return {};
}

void WeightMover::abandon() {
  copy_.reset();
  move_.reset();
}

}  // namespace pumice
