#include "engine/submitter.hpp"

#include <algorithm>
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

Status Submitter::run(const vk::RecordedWork& work) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<VkCommandBuffer> slice;
  double slice_predicted_ns = 0;
  double total_nominal_ns = 0;
  uint64_t last_value = 0;
  last_slices_ = 0;
  const auto submit = [&]() -> Status {
    PUMICE_TRY(last_value, device_->submit(slice));
    slice.clear();
    slice_predicted_ns = 0;
    ++last_slices_;
    return {};
  };
  for (const vk::RecordedWork::Segment& segment : work.segments()) {
    const double predicted = predicted_ns(segment.cost);
    if (!slice.empty() && slice_predicted_ns + predicted > slice_ns_) PUMICE_TRY_STATUS(submit());
    slice.push_back(segment.commands);
    slice_predicted_ns += predicted;
    total_nominal_ns += nominal_ns(segment.cost);
  }
  PUMICE_TRY_STATUS(submit());
  PUMICE_TRY_STATUS(device_->wait(last_value));
  const double elapsed_ns =
      std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
  if (total_nominal_ns > 0) slowness_ = 0.5 * slowness_ + 0.5 * elapsed_ns / total_nominal_ns;
  return {};
}

}  // namespace pumice
