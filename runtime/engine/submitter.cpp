#include "engine/submitter.hpp"

#include <algorithm>
#include <limits>
#include <vector>

namespace pumice {
namespace {

// A slow device to begin with; `slowness_` corrects it after the first step.
constexpr double kNominalBytesPerNs = 5;
constexpr double kNominalFlopsPerNs = 20;

double nominal_ns(const vk::Cost& cost) {
  return std::max(static_cast<double>(cost.bytes) / kNominalBytesPerNs,
                  static_cast<double>(cost.flops) / kNominalFlopsPerNs);
}

}  // namespace

Submitter::Submitter(std::shared_ptr<vk::Device> device, std::chrono::milliseconds slice)
    : device_(std::move(device)), slice_ns_(static_cast<double>(slice.count()) * 1e6) {}

double Submitter::predicted_ns(const vk::Cost& cost) const { return slowness_ * nominal_ns(cost); }

Result<Submitter::Ticket> Submitter::submit(const vk::RecordedWork& work) {
  Ticket ticket{.submitted = std::chrono::steady_clock::now()};
  std::vector<VkCommandBuffer> slice;
  double slice_predicted_ns = 0;
  const auto submit_slice = [&]() -> Status {
    PUMICE_TRY(ticket.value, device_->submit(slice));
    slice.clear();
    slice_predicted_ns = 0;
    return {};
  };
  for (const vk::RecordedWork::Segment& segment : work.segments()) {
    const double predicted = predicted_ns(segment.cost);
    if (!slice.empty() && slice_predicted_ns + predicted > slice_ns_) {
      PUMICE_TRY_STATUS(submit_slice());
    }
    slice.push_back(segment.commands);
    slice_predicted_ns += predicted;
    ticket.nominal_ns += nominal_ns(segment.cost);
  }
  PUMICE_TRY_STATUS(submit_slice());
  return ticket;
}

Result<double> Submitter::wait(const Ticket& ticket) {
  PUMICE_TRY(const uint64_t reached, device_->completed());
  const bool too_late = reached >= ticket.value;
  PUMICE_TRY_STATUS(device_->wait(ticket.value));
  const auto now = std::chrono::steady_clock::now();
  const std::chrono::duration<double> elapsed = now - std::max(ticket.submitted, last_ended_);
  last_ended_ = now;
  if (too_late) return std::numeric_limits<double>::quiet_NaN();
  if (ticket.nominal_ns > 0) {
    slowness_ = 0.5 * slowness_ + 0.5 * elapsed.count() * 1e9 / ticket.nominal_ns;
  }
  return elapsed.count();
}

}  // namespace pumice
