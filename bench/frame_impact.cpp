#include "bench/frame_impact.hpp"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <span>
#include <string_view>
#include <thread>
#include <utility>

#include "bench/statistics.hpp"
#include "bench/timed_request.hpp"
#include "bench/timing.hpp"
#include "shaders/peak/peak.hpp"
#include "vk/recorder.hpp"
#include "vk/transfer.hpp"

namespace pumice::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

/// What a frame computes: arithmetic in registers, for about as long as was asked for.
struct FrameWork {
  vk::Arena arena;
  vk::RecordedWork work;
};

Result<FrameWork> frame_work(vk::PipelineLibrary& pipelines, double ms) {
  using ops::PeakArithmetic;
  const std::shared_ptr<vk::Device>& device = pipelines.device();
  FrameWork frame{.arena = vk::Arena(device, vk::MemoryDomain::kDevice, "frames"), .work = {}};
  const bool is_cpu = device->plan().device_class == vk::DeviceClass::kCpu;
  PeakArithmetic::Args args{.n_workgroups = is_cpu ? 64u : 8192u, .n_iterations = 16};
  PUMICE_TRY(args.factors, frame.arena.allocate(8));
  PUMICE_TRY(args.y, frame.arena.allocate(uint64_t{args.n_workgroups} *
                                          PeakArithmetic::kWorkgroupSize * 4));
  const float factors[] = {-1.0f, 3.0f};  // x becomes 3 - x and back
  vk::Uploader uploader(device);
  PUMICE_TRY_STATUS(uploader.write(args.factors, std::span<const float>(factors)));
  PUMICE_TRY(const PeakArithmetic op, PeakArithmetic::plan(pipelines, PeakArithmetic::Kind::kF32));
  PUMICE_TRY_STATUS(pipelines.compile());
  const Run run = [&](vk::Recorder& recorder) { op.record(recorder, args); };
  PUMICE_TRY(const Timing timing, time_runs(device, std::span(&run, 1), {.repetitions = 3}));
  const double once_ms = summarize(timing.samples_ns).median * 1e-6;
  const auto n_runs = static_cast<uint32_t>(std::clamp(std::round(ms / once_ms), 1.0, 1e5));
  vk::Recorder recorder(device);
  for (uint32_t i = 0; i < n_runs; ++i) op.record(recorder, args);
  PUMICE_TRY(frame.work, recorder.finish());
  return frame;
}

/// One row: a loop as a game has it.
class Frames {
 public:
  Frames(vk::Device& device, const vk::RecordedWork& work, Engine* engine,
         const FrameOptions& options, double budget_ms)
      : device_(device), work_(work), engine_(engine), options_(options) {
    row_.budget_ms = budget_ms;
  }

  Result<FrameRow> run() {
    PUMICE_TRY_STATUS(loop(options_.seconds / 4));
    row_.samples_ns.clear();
    row_.slices.clear();
    row_.late = n_tokens_ = 0;
    const Clock::time_point start = Clock::now();
    PUMICE_TRY_STATUS(loop(options_.seconds));
    row_.tokens_per_s = static_cast<double>(n_tokens_) / Seconds(Clock::now() - start).count();
    return std::move(row_);
  }

 private:
  Status loop(double seconds) {
    const Clock::time_point start = Clock::now();
    const auto period =
        std::chrono::duration_cast<Clock::duration>(Seconds(1 / options_.frame_rate));
    Clock::time_point next = start;
    do {
      if (options_.stop && options_.stop()) {
        return make_error(ErrorCode::kCancelled, "interrupted");
      }
      std::this_thread::sleep_until(next);
      PUMICE_TRY_STATUS(frame());
      for (next += period; next < Clock::now(); next += period) ++row_.late;
    } while (Clock::now() - start < Seconds(seconds));
    return {};
  }

  Status frame() {
    const Clock::time_point start = Clock::now();
    if (engine_ != nullptr) PUMICE_TRY_STATUS(generate());
    PUMICE_TRY_STATUS(vk::run(device_, work_));
    row_.samples_ns.push_back(ns_since(start));
    return {};
  }

  Status generate() {
    if (engine_->idle()) {
      const uint32_t window = engine_->options().context_tokens;
      const uint32_t n_prompt = std::min(options_.prompt_tokens, window / 2);
      PUMICE_TRY_STATUS(
          engine_->submit({.prompt = random_prompt(n_prompt, options_.n_vocab, ++n_requests_),
                           .max_new_tokens = window - n_prompt}));
    }
    PUMICE_TRY(const std::vector<StepEvent> events, engine_->poll(row_.budget_ms * 1e-3));
    for (const StepEvent& event : events) n_tokens_ += event.token ? 1 : 0;
    for (const SliceTime& slice : engine_->take_slice_times()) row_.slices.push_back(slice);
    return {};
  }

  vk::Device& device_;
  const vk::RecordedWork& work_;
  Engine* engine_;
  const FrameOptions& options_;
  FrameRow row_;
  uint64_t n_tokens_ = 0;
  uint32_t n_requests_ = 0;
};

std::string budget_name(double budget_ms) {
  if (budget_ms == 0) return "alone";
  return std::isinf(budget_ms) ? "unlimited" : fmt::format("{:g} ms", budget_ms);
}

struct Quantiles {
  double p50 = 0;
  double p99 = 0;
  double max = 0;
};

/// Of samples less `minus`, times `unit`.
Quantiles quantiles(std::vector<double> samples, double minus, double unit) {
  if (samples.empty()) return {};
  std::ranges::sort(samples);
  const auto at = [&](double q) { return (quantile(samples, q) - minus) * unit; };
  return {at(0.5), at(0.99), at(1)};
}

/// Of a row's frames, or of what they took longer than frames alone: milliseconds.
Quantiles frame_ms(const FrameRow& row, double minus_ns) {
  return quantiles(row.samples_ns, minus_ns, 1e-6);
}

std::vector<double> slice_samples_ns(const FrameRow& row) {
  std::vector<double> samples;
  for (const SliceTime& slice : row.slices) samples.push_back(slice.measured_ns);
  return samples;
}

Quantiles slice_over_asked(const FrameRow& row) {
  std::vector<double> samples;
  for (const SliceTime& slice : row.slices) samples.push_back(slice.measured_ns / slice.asked_ns);
  return quantiles(std::move(samples), 0, 1);
}

std::string_view queue_name(const FrameReport& report) {
  return report.own_queue ? "own" : "shared";
}

double median_alone_ns(const FrameReport& report) {
  const auto alone = std::ranges::find(report.rows, 0.0, &FrameRow::budget_ms);
  return alone != report.rows.end() ? summarize(alone->samples_ns).median : 0;
}

nlohmann::json to_json(const Quantiles& quantiles, double divisor) {
  return {{"p50", quantiles.p50 / divisor},
          {"p99", quantiles.p99 / divisor},
          {"max", quantiles.max / divisor}};
}

}  // namespace

Result<FrameReport> measure_frames(vk::PipelineLibrary& pipelines, const MakeEngine& make_engine,
                                   const FrameOptions& options,
                                   const std::function<void(const std::string&)>& progress) {
  PUMICE_TRY(const FrameWork work, frame_work(pipelines, options.frame_work_ms));
  FrameReport report{.frame_rate = options.frame_rate,
                     .frame_work_ms = options.frame_work_ms,
                     .own_queue = options.own_queue,
                     .rows = {},
                     .ended = {}};
  for (const double budget_ms : options.budgets_ms) {
    if (progress) progress(budget_name(budget_ms));
    std::unique_ptr<Engine> engine;
    if (budget_ms > 0) {
      Result<std::unique_ptr<Engine>> made = make_engine();
      if (!made.ok()) {
        report.ended = made.error();
        break;
      }
      engine = std::move(made).value();
    }
    Result<FrameRow> row =
        Frames(*pipelines.device(), work.work, engine.get(), options, budget_ms).run();
    if (!row.ok()) {
      report.ended = row.error();
      break;
    }
    report.rows.push_back(std::move(row).value());
  }
  return report;
}

nlohmann::json to_json(const FrameReport& report) {
  nlohmann::json rows = nlohmann::json::array();
  const double alone_ns = median_alone_ns(report);
  for (const FrameRow& row : report.rows) {
    const bool is_bounded = row.budget_ms > 0 && std::isfinite(row.budget_ms);
    const bool is_told = !row.slices.empty();
    const nlohmann::json nothing;
    const Quantiles delta = frame_ms(row, alone_ns);
    rows.push_back(
        {{"budget", budget_name(row.budget_ms)},
         {"budget_ms", is_bounded ? nlohmann::json(row.budget_ms) : nullptr},
         {"frames", row.samples_ns.size()},
         {"late", row.late},
         {"frame_ms", to_json(frame_ms(row, 0), 1)},
         {"delta_frame_ms", to_json(delta, 1)},
         {"delta_over_budget", is_bounded ? to_json(delta, row.budget_ms) : nlohmann::json()},
         {"tokens_per_s", row.tokens_per_s},
         {"slices", row.slices.size()},
         {"slice_ms", is_told ? to_json(quantiles(slice_samples_ns(row), 0, 1e-6), 1) : nothing},
         {"slice_over_asked", is_told ? to_json(slice_over_asked(row), 1) : nothing},
         {"slice_samples_ns", slice_samples_ns(row)},
         {"samples_ns", row.samples_ns}});
  }
  return {{"frame_rate", report.frame_rate},
          {"frame_work_ms", report.frame_work_ms},
          {"queue", queue_name(report)},
          {"rows", rows}};
}

std::string to_markdown(const FrameReport& report) {
  const auto slice_cells = [](const FrameRow& row) -> std::string {
    if (row.slices.empty()) return "– | – | – | –";
    const Quantiles measured = slice_over_asked(row);
    return fmt::format("{} | {:.2f} | {:.2f} | {:.2f}", row.slices.size(), measured.p50,
                       measured.p99, measured.max);
  };
  const double alone_ns = median_alone_ns(report);
  std::string text = fmt::format(
      "Frames of {:g} ms at {:g} a second beside generation, on {}; delta: longer than the median "
      "frame alone; a slice: what was submitted at once, measured in parts of what was asked\n\n"
      "| budget | frames | frame ms p50 | delta ms p50 | p99 | max | p99 / budget | late | "
      "tokens/s | slices | measured / asked p50 | p99 | max |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
      report.frame_work_ms, report.frame_rate,
      report.own_queue ? "a queue of their own" : "the same queue");
  for (const FrameRow& row : report.rows) {
    const bool is_bounded = row.budget_ms > 0 && std::isfinite(row.budget_ms);
    const Quantiles delta = frame_ms(row, alone_ns);
    text += fmt::format("| {} | {} | {:.2f} | {:.2f} | {:.2f} | {:.2f} | {} | {} | {:.1f} | {} |\n",
                        budget_name(row.budget_ms), row.samples_ns.size(), frame_ms(row, 0).p50,
                        delta.p50, delta.p99, delta.max,
                        is_bounded ? fmt::format("{:.2f}", delta.p99 / row.budget_ms) : "–",
                        row.late, row.tokens_per_s, slice_cells(row));
  }
  return text;
}

}  // namespace pumice::bench
