// Carries out what WeightPlacement wants moved: copies on the device, some bytes at a time behind
// whatever else is submitted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/log.hpp"
#include "base/result.hpp"
#include "engine/submitter.hpp"
#include "models/weight_placement.hpp"
#include "vk/device.hpp"
#include "vk/recorder.hpp"

namespace pumice {

/// Not thread-safe. All that it is made with must outlive it.
class WeightMover {
 public:
  WeightMover(std::shared_ptr<vk::Device> device, WeightPlacement& placement, Submitter& submitter,
              const Logger& logger)
      : device_(std::move(device)), placement_(placement), submitter_(submitter), logger_(logger) {}

  /// Go on as far as that needs no waiting: about as many bytes are queued as can be copied in
  /// `budget_s`. Where there is no memory for a piece, it stays until `try_again`. Errors: those of
  /// the device; what moved is then where it was.
  Status go_on(double budget_s);
  void try_again() { refused_ = false; }

  /// A copy is under way: `ticket` is its, until it has ended.
  bool busy() const { return copy_ != nullptr; }
  Submitter::Ticket ticket() const { return ticket_; }
  /// `go_on` has something to do: nobody else moves what is to be moved.
  bool has_work() const { return move_ != nullptr || (!refused_ && placement_.can_begin()); }
  /// Nothing is left to do, or can be done.
  bool settled() const { return move_ == nullptr && (refused_ || placement_.settled()); }

  /// Leave what moves where it was. The device is idle.
  void abandon();

 private:
  Result<bool> land();
  Status begin();
  Status queue(uint64_t most_bytes);

  std::shared_ptr<vk::Device> device_;
  WeightPlacement& placement_;
  Submitter& submitter_;
  const Logger& logger_;
  std::unique_ptr<WeightPlacement::Move> move_;
  size_t next_copy_ = 0;
  uint64_t copied_bytes_ = 0;                     // of the next copy
  std::shared_ptr<const vk::RecordedWork> copy_;  // of some bytes, until it has ended
  Submitter::Ticket ticket_ = 0;
  bool refused_ = false;  // memory for a piece
  bool told_of_refusal_ = false;
};

}  // namespace pumice
