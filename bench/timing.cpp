#include "bench/timing.hpp"

#include <algorithm>

namespace pumice::bench {
namespace {

constexpr uint32_t kMaxRuns = 2000;  // of a sample: recording them takes memory and time

Result<vk::RecordedWork> record_runs(const std::shared_ptr<vk::Device>& device,
                                     std::span<const Run> rotation, uint32_t n_runs) {
  vk::Recorder recorder(device, {.time_span = has_device_clock(*device)});
  for (uint32_t i = 0; i < n_runs; ++i) rotation[i % rotation.size()](recorder);
  return recorder.finish();
}

Result<double> elapsed_ns(vk::Device& device, const vk::RecordedWork& work,
                          const TimingOptions& options) {
  if (options.stop && options.stop()) return make_error(ErrorCode::kCancelled, "interrupted");
  const auto start = std::chrono::steady_clock::now();
  PUMICE_TRY_STATUS(vk::run(device, work));
  const std::chrono::duration<double, std::nano> host = std::chrono::steady_clock::now() - start;
  if (!has_device_clock(device)) return host.count();
  return work.span_ns();
}

uint32_t runs_for(double one_run_ns, size_t rotation, const TimingOptions& options) {
  const double one = std::max(one_run_ns, 1.0);
  const double wanted = std::max(options.min_sample_ns / one, static_cast<double>(rotation));
  const double most = std::max(options.max_sample_ns / one, 1.0);
  return static_cast<uint32_t>(std::clamp(std::min(wanted, most), 1.0, double{kMaxRuns}));
}

}  // namespace

vk::Cost Timing::cost() const {
  vk::Cost total;
  if (!commands.empty()) total.arithmetic = commands[0].cost.arithmetic;
  for (const TimedCommand& command : commands) total += command.cost;
  return total;
}

bool has_device_clock(const vk::Device& device) { return device.plan().timestamp_valid_bits > 0; }

Result<Timing> time_runs(const std::shared_ptr<vk::Device>& device, std::span<const Run> rotation,
                         const TimingOptions& options) {
  Timing timing{.device_clock = has_device_clock(*device)};
  PUMICE_TRY(vk::RecordedWork work, record_runs(device, rotation, 1));
  for (const vk::CommandInfo& command : work.commands()) {
    timing.commands.push_back({std::string(command.label), command.cost});
  }
  // The first runs are slow (cold caches, low clocks), so the number of runs is found in steps that
  // warm up as well.
  PUMICE_TRY(double one_run_ns, elapsed_ns(*device, work, options));
  timing.runs_per_sample = 1;
  for (int attempt = 0; attempt < 4; ++attempt) {
    const uint32_t n_runs = runs_for(one_run_ns, rotation.size(), options);
    if (attempt > 0 && n_runs < timing.runs_per_sample * 1.5) break;
    if (n_runs != timing.runs_per_sample) {
      PUMICE_TRY(work, record_runs(device, rotation, n_runs));
      timing.runs_per_sample = n_runs;
    }
    PUMICE_TRY(const double all_ns, elapsed_ns(*device, work, options));
    one_run_ns = all_ns / n_runs;
  }
  for (uint32_t i = 0; i < options.repetitions; ++i) {
    PUMICE_TRY(const double all_ns, elapsed_ns(*device, work, options));
    timing.samples_ns.push_back(all_ns / timing.runs_per_sample);
  }
  return timing;
}

}  // namespace pumice::bench
