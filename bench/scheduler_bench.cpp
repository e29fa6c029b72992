// What scheduling costs on the host per step: planning and committing, with requests that all
// decode, and with a prompt being read beside them.
//
//   bench/pumice_bench_scheduler --benchmark_repetitions=5 --benchmark_report_aggregates_only=true
#include <benchmark/benchmark.h>

#include <vector>

#include "scheduler/scheduler.hpp"

namespace pumice {
namespace {

constexpr uint32_t kBlocks = 200'000;  // allocated and touched before the clock starts
constexpr uint32_t kManyTokens = 1u << 20;

RequestId add(Scheduler& scheduler, uint32_t first_token, uint32_t prompt_tokens, uint32_t n_new) {
  std::vector<uint32_t> prompt(prompt_tokens);
  for (uint32_t i = 0; i < prompt_tokens; ++i) prompt[i] = first_token + i;
  return *scheduler.add({.prompt = std::move(prompt), .max_new_tokens = n_new}, 0);
}

struct BusyScheduler {
  Scheduler scheduler;
  std::vector<std::span<const uint32_t>> taken;
  double now = 0;

  explicit BusyScheduler(uint32_t n_requests)
      : scheduler(*Scheduler::create(
            {.token_budget = 2048,
             .chunk_tokens = 512,
             .tpot_target_s = 0.05,
             .max_running = n_requests + 1},
            {.n_pages = kBlocks}, CostModel({.fixed = 5e-3, .per_row = 1e-5, .per_token = 4e-5}))) {
    for (uint32_t i = 0; i < n_requests; ++i) add(scheduler, i * 1000, 64, kManyTokens);
    while (scheduler.telemetry().generated_tokens < 4 * n_requests) step();
  }

  void step() {
    const StepPlan plan = scheduler.plan_step(now);
    now += 0.01;
    static constexpr uint32_t kSampled[] = {7};
    taken.clear();
    for (const StepChunk& chunk : plan.chunks) {
      taken.push_back(std::span(kSampled).first(chunk.n_samples));
    }
    scheduler.commit(plan.id, taken, now, 0.01);
  }
};

void decode_step(benchmark::State& state) {
  BusyScheduler busy(static_cast<uint32_t>(state.range(0)));
  for (auto _ : state) busy.step();
}
BENCHMARK(decode_step)->Arg(1)->Arg(32)->Arg(256)->Iterations(3000)->Unit(benchmark::kMicrosecond);

/// A prompt of 8k tokens is always being read; its arrival (hashing 512 blocks) is part of the
/// time.
void mixed_step(benchmark::State& state) {
  BusyScheduler busy(static_cast<uint32_t>(state.range(0)));
  uint32_t first_token = 1u << 20;
  RequestId prompt = 0;
  for (auto _ : state) {
    if (prompt == 0) prompt = add(busy.scheduler, first_token += 10000, 8192, 1);
    busy.step();
    if (busy.scheduler.request(prompt).ended()) {
      busy.scheduler.remove(prompt);
      prompt = 0;
    }
  }
}
BENCHMARK(mixed_step)->Arg(256)->Iterations(3000)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace pumice

BENCHMARK_MAIN();
