#include "bench/peaks.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "bench/statistics.hpp"
#include "shaders/peak/peak.hpp"
#include "vk/transfer.hpp"

namespace pumice::bench {
namespace {

constexpr uint32_t kDispatches = 256;  // in one run of the dispatch measurements

uint64_t last_level_cache_bytes() {
#ifdef _SC_LEVEL3_CACHE_SIZE
  for (const int level : {_SC_LEVEL4_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE}) {
    const long bytes = sysconf(level);
    if (bytes > 0) return static_cast<uint64_t>(bytes);
  }
#endif
  return uint64_t{32} << 20;
}

/// What the measurements share.
struct Bench {
  vk::PipelineLibrary& pipelines;
  const std::shared_ptr<vk::Device>& device;
  vk::Arena arena;
  const TimingOptions& options;
  Peaks& result;
};

Status measure(Bench& bench, std::string name, Peak::Unit unit, const Run& run) {
  PUMICE_TRY(const Timing timing, time_runs(bench.device, std::span(&run, 1), bench.options));
  bench.result.peaks.push_back({.name = std::move(name),
                                .unit = unit,
                                .cost = timing.cost(),
                                .samples_ns = timing.samples_ns});
  return {};
}

Status measure_memory(Bench& bench) {
  using ops::PeakMemory;
  const uint64_t whole = PeakMemory::source_bytes(bench.result.working_set_bytes);
  const uint64_t half = PeakMemory::source_bytes(bench.result.working_set_bytes / 2);
  PUMICE_TRY(const vk::BufferRange memory, bench.arena.allocate(whole));
  PUMICE_TRY(const vk::BufferRange sums, bench.arena.allocate(PeakMemory::sums_bytes(whole)));
  PUMICE_TRY(const PeakMemory read, PeakMemory::plan(bench.pipelines, PeakMemory::Kind::kRead));
  PUMICE_TRY(const PeakMemory copy, PeakMemory::plan(bench.pipelines, PeakMemory::Kind::kCopy));
  PUMICE_TRY_STATUS(bench.pipelines.compile());
  vk::Recorder fill(bench.device);  // memory never written may share one page of zeros
  fill.fill(memory, 0x5EED5EEDu);
  PUMICE_TRY(const vk::RecordedWork filling, fill.finish());
  PUMICE_TRY_STATUS(vk::run(*bench.device, filling));
  PUMICE_TRY_STATUS(measure(
      bench, "read bandwidth", Peak::Unit::kGigabytesPerSecond,
      [&](vk::Recorder& recorder) { read.record(recorder, {.source = memory, .target = sums}); }));
  return measure(
      bench, "copy bandwidth", Peak::Unit::kGigabytesPerSecond, [&](vk::Recorder& recorder) {
        copy.record(recorder,
                    {.source = memory.subrange(0, half), .target = memory.subrange(half, half)});
      });
}

Status measure_arithmetic(Bench& bench, ops::PeakArithmetic::Kind kind, std::string name) {
  using ops::PeakArithmetic;
  constexpr double kDispatchNs = 4e6;  // so that launching it does not count
  constexpr uint32_t kProbe = 16;
  const bool cpu = bench.device->plan().device_class == DeviceClass::kCpu;
  PeakArithmetic::Args args{.n_workgroups = cpu ? 64u : 8192u, .n_iterations = kProbe};
  PUMICE_TRY(args.factors, bench.arena.allocate(8));
  PUMICE_TRY(args.y, bench.arena.allocate(uint64_t{args.n_workgroups} *
                                          PeakArithmetic::kWorkgroupSize * 4));
  // x becomes 3 - x and back: small whole numbers, so nothing is subnormal or grows.
  const float floats[] = {-1.0f, 3.0f};
  const uint32_t bytes[] = {0x7F80FF03u, 0x01020381u};
  vk::Uploader uploader(bench.device);
  if (kind == PeakArithmetic::Kind::kInt8Dot) {
    PUMICE_TRY_STATUS(uploader.write(args.factors, std::span<const uint32_t>(bytes)));
  } else {
    PUMICE_TRY_STATUS(uploader.write(args.factors, std::span<const float>(floats)));
  }
  PUMICE_TRY(const PeakArithmetic op, PeakArithmetic::plan(bench.pipelines, kind));
  PUMICE_TRY_STATUS(bench.pipelines.compile());
  const Run run = [&](vk::Recorder& recorder) { op.record(recorder, args); };
  PUMICE_TRY(const Timing probe,
             time_runs(bench.device, std::span(&run, 1), {.repetitions = 1, .min_sample_ns = 1e5}));
  const double wanted = kProbe * kDispatchNs / std::max(probe.samples_ns[0], 1.0);
  args.n_iterations = static_cast<uint32_t>(std::clamp(wanted, double{kProbe}, 1e6));
  return measure(bench, std::move(name), Peak::Unit::kTeraflops, run);
}

Status measure_dispatches(Bench& bench) {
  constexpr uint64_t kDistance = 256;
  PUMICE_TRY(const vk::BufferRange words, bench.arena.allocate(kDispatches * kDistance));
  PUMICE_TRY(const ops::PeakTouch op, ops::PeakTouch::plan(bench.pipelines));
  PUMICE_TRY_STATUS(bench.pipelines.compile());
  for (const bool dependent : {true, false}) {
    const Run run = [&](vk::Recorder& recorder) {
      for (uint32_t i = 0; i < kDispatches; ++i) {
        op.record(recorder, words.subrange(dependent ? 0 : i * kDistance, 4), i);
      }
    };
    PUMICE_TRY(Timing timing, time_runs(bench.device, std::span(&run, 1), bench.options));
    for (double& sample : timing.samples_ns) sample /= kDispatches;
    bench.result.peaks.push_back(
        {.name = dependent ? "dispatch, dependent" : "dispatch, independent",
         .unit = Peak::Unit::kMicroseconds,
         .cost = {},
         .samples_ns = timing.samples_ns});
  }

  // What the host pays: handing over one command buffer, and until it knows that it is done.
  vk::Recorder recorder(bench.device);
  op.record(recorder, words.subrange(0, 4), 0);
  PUMICE_TRY(const vk::RecordedWork work, recorder.finish());
  const VkCommandBuffer commands = work.segments()[0].commands;
  Peak submit{
      .name = "submit, host", .unit = Peak::Unit::kMicroseconds, .cost = {}, .samples_ns = {}};
  Peak round_trip = submit;
  round_trip.name = "submit and wait";
  const auto now = [] { return std::chrono::steady_clock::now(); };
  const auto ns = [](auto duration) {
    return std::chrono::duration<double, std::nano>(duration).count();
  };
  for (int i = 0; i < 40; ++i) {
    const auto start = now();
    PUMICE_TRY(const uint64_t value, bench.device->submit(std::span(&commands, 1)));
    const auto submitted = now();
    PUMICE_TRY_STATUS(bench.device->wait(value));
    if (i < 8) continue;  // warming up
    submit.samples_ns.push_back(ns(submitted - start));
    round_trip.samples_ns.push_back(ns(now() - start));
  }
  bench.result.peaks.push_back(std::move(submit));
  bench.result.peaks.push_back(std::move(round_trip));
  return {};
}

}  // namespace

std::string_view unit_name(Peak::Unit unit) {
  switch (unit) {
    case Peak::Unit::kGigabytesPerSecond:
      return "GB/s";
    case Peak::Unit::kTeraflops:
      return "TFLOP/s";
    default:
      return "us";
  }
}

double Peak::value() const {
  if (samples_ns.empty()) return 0;
  if (unit == Unit::kMicroseconds) return summarize(samples_ns).median * 1e-3;
  const double best_ns = *std::min_element(samples_ns.begin(), samples_ns.end());
  if (best_ns <= 0) return 0;
  return unit == Unit::kGigabytesPerSecond ? static_cast<double>(cost.bytes) / best_ns
                                           : static_cast<double>(cost.flops) / best_ns * 1e-3;
}

Roofline Peaks::roofline() const {
  Roofline roofline;
  for (const Peak& peak : peaks) {
    if (peak.unit == Peak::Unit::kGigabytesPerSecond) {
      roofline.bytes_per_ns = std::max(roofline.bytes_per_ns, peak.value());
    } else if (peak.unit == Peak::Unit::kTeraflops) {
      double& best = roofline.peak(peak.cost.arithmetic);
      best = std::max(best, peak.value() * 1e3);
    }
  }
  return roofline;
}

uint64_t working_set_bytes(const vk::Device& device) {
  const DevicePlan& plan = device.plan();
  const uint64_t wanted =
      plan.device_class == DeviceClass::kCpu ? 4 * last_level_cache_bytes() : uint64_t{1} << 30;
  return std::min({wanted, plan.slab_bytes, plan.device_budget_bytes / 4});
}

Result<Peaks> measure_peaks(vk::PipelineLibrary& pipelines, const TimingOptions& options,
                            const std::function<void(const std::string&)>& progress) {
  using Kind = ops::PeakArithmetic::Kind;
  const auto say = [&](const std::string& what) {
    if (progress) progress(what);
  };
  Peaks peaks{.working_set_bytes = working_set_bytes(*pipelines.device())};
  {
    say("bandwidth");
    Bench bench{pipelines, pipelines.device(),
                vk::Arena(pipelines.device(), MemoryDomain::kDevice, "peaks"), options, peaks};
    PUMICE_TRY_STATUS(measure_memory(bench));
  }
  Bench bench{pipelines, pipelines.device(),
              vk::Arena(pipelines.device(), MemoryDomain::kDevice, "peaks", 8 << 20), options,
              peaks};
  for (const auto& [kind, name] : {std::pair(Kind::kF32, "f32"), std::pair(Kind::kF16, "f16"),
                                   std::pair(Kind::kInt8Dot, "int8 dot")}) {
    if (!ops::PeakArithmetic::supported(pipelines.device()->plan(), kind)) {
      peaks.absent.push_back(fmt::format("{}: not in this build or on this device", name));
      continue;
    }
    say(name);
    PUMICE_TRY_STATUS(measure_arithmetic(bench, kind, name));
  }
  say("dispatches");
  PUMICE_TRY_STATUS(measure_dispatches(bench));
  return peaks;
}

}  // namespace pumice::bench
