#include "bench/peaks.hpp"

#include <algorithm>
#include <chrono>
#include <random>

#include "base/memory.hpp"
#include "bench/statistics.hpp"
#include "shaders/peak/peak.hpp"
#include "vk/transfer.hpp"

namespace pumice::bench {
namespace {

constexpr uint32_t kDispatches = 256;  // in one run of the dispatch measurements

uint64_t assumed_cache_bytes() {
  const uint64_t n_bytes = last_level_cache_bytes();
  return n_bytes != 0 ? n_bytes : uint64_t{32} << 20;
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

/// Of `n_bytes` of the bench's arena; returns them.
Result<vk::BufferRange> measure_reading_of(Bench& bench, uint64_t n_bytes) {
  using ops::PeakMemory;
  PUMICE_TRY(const vk::BufferRange memory, bench.arena.allocate(n_bytes));
  PUMICE_TRY(const vk::BufferRange sums, bench.arena.allocate(PeakMemory::sums_bytes(n_bytes)));
  PUMICE_TRY(const PeakMemory read, PeakMemory::plan(bench.pipelines, PeakMemory::Kind::kRead));
  PUMICE_TRY_STATUS(bench.pipelines.compile());
  vk::Recorder fill(bench.device);  // memory never written may share one page of zeros
  fill.fill(memory, 0x5EED5EEDu);
  PUMICE_TRY(const vk::RecordedWork filling, fill.finish());
  PUMICE_TRY_STATUS(vk::run(*bench.device, filling));
  PUMICE_TRY_STATUS(measure(
      bench, "read bandwidth", Peak::Unit::kGigabytesPerSecond,
      [&](vk::Recorder& recorder) { read.record(recorder, {.source = memory, .target = sums}); }));
  return memory;
}

Status measure_memory(Bench& bench) {
  using ops::PeakMemory;
  const uint64_t whole = PeakMemory::source_bytes(bench.result.working_set_bytes);
  const uint64_t half = PeakMemory::source_bytes(bench.result.working_set_bytes / 2);
  PUMICE_TRY(const vk::BufferRange memory, measure_reading_of(bench, whole));
  PUMICE_TRY(const PeakMemory copy, PeakMemory::plan(bench.pipelines, PeakMemory::Kind::kCopy));
  PUMICE_TRY_STATUS(bench.pipelines.compile());
  return measure(
      bench, "copy bandwidth", Peak::Unit::kGigabytesPerSecond, [&](vk::Recorder& recorder) {
        copy.record(recorder,
                    {.source = memory.subrange(0, half), .target = memory.subrange(half, half)});
      });
}

/// Iterations of a dispatch so long that launching it does not count, from one of `probe`
/// iterations.
Result<uint32_t> long_iterations(Bench& bench, const Run& run, uint32_t probe) {
  constexpr double kDispatchNs = 4e6;
  PUMICE_TRY(const Timing timing,
             time_runs(bench.device, std::span(&run, 1),
                       {.repetitions = 1, .min_sample_ns = 1e5, .stop = bench.options.stop}));
  const double wanted = probe * kDispatchNs / std::max(timing.samples_ns[0], 1.0);
  return static_cast<uint32_t>(std::clamp(wanted, static_cast<double>(probe), 1e6));
}

Status measure_arithmetic(Bench& bench, ops::PeakArithmetic::Kind kind, std::string name) {
  using ops::PeakArithmetic;
  constexpr uint32_t kProbe = 16;
  const bool cpu = bench.device->plan().device_class == vk::DeviceClass::kCpu;
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
  PUMICE_TRY(args.n_iterations, long_iterations(bench, run, kProbe));
  return measure(bench, std::move(name), Peak::Unit::kTeraflops, run);
}

/// Two a and two b whose products are zero without being so: pairs of columns of a are alike, those
/// of rows of b opposite. So the chains stay where they start, however long they run.
std::vector<std::byte> balanced_factors(const vk::MatrixShape& shape) {
  std::vector<std::byte> factors;
  const auto append = [&](bool negative) {  // 1 or -1
    switch (shape.a) {
      case vk::ComponentType::kS8:
        factors.push_back(std::byte{negative ? uint8_t{0xFF} : uint8_t{1}});
        break;
      case vk::ComponentType::kBf16:
        factors.insert(factors.end(),
                       {std::byte{0x80}, negative ? std::byte{0xBF} : std::byte{0x3F}});
        break;
      default:
        factors.insert(factors.end(),
                       {std::byte{0x00}, negative ? std::byte{0xBC} : std::byte{0x3C}});
    }
  };
  std::mt19937 engine(1);
  std::vector<bool> signs(std::max(shape.m, shape.n));
  const auto draw = [&] { return engine() % 2 == 1; };
  for (uint32_t row = 0; row < 2 * shape.m; ++row) {
    for (uint32_t i = 0; i < shape.k; ++i) {
      if (i % 2 == 0) signs[0] = draw();
      append(signs[0]);
    }
  }
  for (uint32_t i = 0; i < 2 * shape.k; ++i) {
    for (uint32_t column = 0; column < shape.n; ++column) {
      signs[column] = i % 2 == 0 ? draw() : !signs[column];
      append(signs[column]);
    }
  }
  return factors;
}

Status measure_matrix(Bench& bench, ops::PeakMatrix::Type type, const vk::MatrixShape& shape) {
  constexpr uint32_t kProbe = 16;
  const bool cpu = bench.device->plan().device_class == vk::DeviceClass::kCpu;
  PUMICE_TRY(const ops::PeakMatrix op, ops::PeakMatrix::plan(bench.pipelines, type, shape));
  PUMICE_TRY_STATUS(bench.pipelines.compile());
  ops::PeakMatrix::Args args{.n_workgroups = cpu ? 64u : 4096u, .n_iterations = kProbe};
  PUMICE_TRY(args.factors, bench.arena.allocate(op.factors_bytes()));
  PUMICE_TRY(args.y, bench.arena.allocate(op.y_bytes(args.n_workgroups)));
  vk::Uploader uploader(bench.device);
  const std::vector<std::byte> factors = balanced_factors(shape);
  PUMICE_TRY_STATUS(uploader.write(args.factors, std::span<const std::byte>(factors)));
  const Run run = [&](vk::Recorder& recorder) { op.record(recorder, args); };
  PUMICE_TRY(args.n_iterations, long_iterations(bench, run, kProbe));
  return measure(bench,
                 fmt::format("{} {}x{}x{}", vk::arithmetic_name(ops::PeakMatrix::arithmetic(type)),
                             shape.m, shape.n, shape.k),
                 Peak::Unit::kTeraflops, run);
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
  constexpr std::string_view kNames[] = {"GB/s", "TFLOP/s", "us"};
  return kNames[static_cast<size_t>(unit)];
}

double Peak::value() const {
  if (samples_ns.empty()) return 0;
  if (unit == Unit::kMicroseconds) return summarize(samples_ns).median * 1e-3;
  const double best_ns = *std::ranges::min_element(samples_ns);
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
  const vk::DevicePlan& plan = device.plan();
  const uint64_t wanted =
      plan.device_class == vk::DeviceClass::kCpu ? 4 * assumed_cache_bytes() : uint64_t{1} << 30;
  return std::min({wanted, plan.slab_bytes, plan.device_budget_bytes / 4});
}

Result<double> measure_reading(vk::PipelineLibrary& pipelines, vk::MemoryDomain domain,
                               uint64_t most_bytes, const TimingOptions& options) {
  Peaks peaks;
  Bench bench{pipelines, pipelines.device(), vk::Arena(pipelines.device(), domain, "peaks"),
              options, peaks};
  const uint64_t wanted = std::min(working_set_bytes(*pipelines.device()), most_bytes);
  const uint64_t n_bytes = ops::PeakMemory::source_bytes(wanted);
  if (n_bytes == 0) {
    return make_error(ErrorCode::kInvalidArgument, "{} bytes are too few to time reading them",
                      most_bytes);
  }
  PUMICE_TRY_STATUS(measure_reading_of(bench, n_bytes));
  return peaks.peaks.front().value();
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
                vk::Arena(pipelines.device(), vk::MemoryDomain::kDevice, "peaks"), options, peaks};
    PUMICE_TRY_STATUS(measure_memory(bench));
  }
  Bench bench{pipelines, pipelines.device(),
              vk::Arena(pipelines.device(), vk::MemoryDomain::kDevice, "peaks", 8 << 20), options,
              peaks};
  // What this build or device lacks, or its self-test has rejected, is named and left out.
  const auto optional = [&](const std::string& name, const Status& status) -> Status {
    if (status.ok() || status.error().code != ErrorCode::kInvalidArgument) return status;
    peaks.absent.push_back(name + ": " + status.error().message);
    return {};
  };
  for (const auto& [kind, name] : {std::pair(Kind::kF32, "f32"), std::pair(Kind::kF16, "f16"),
                                   std::pair(Kind::kInt8Dot, "int8 dot")}) {
    say(name);
    PUMICE_TRY_STATUS(optional(name, measure_arithmetic(bench, kind, name)));
  }
  for (const auto type : ops::PeakMatrix::kTypes) {
    const auto shapes = ops::PeakMatrix::shapes(pipelines.device()->plan(), type);
    const std::string name(vk::arithmetic_name(ops::PeakMatrix::arithmetic(type)));
    if (shapes.empty()) peaks.absent.push_back(name + ": not in this build or on this device");
    for (const vk::MatrixShape& shape : shapes) {
      say(name);
      PUMICE_TRY_STATUS(optional(name, measure_matrix(bench, type, shape)));
    }
  }
  say("dispatches");
  PUMICE_TRY_STATUS(measure_dispatches(bench));
  return peaks;
}

}  // namespace pumice::bench
