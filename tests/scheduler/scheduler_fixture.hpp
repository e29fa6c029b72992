// A scheduler with a clock that advances by what steps are said to cost, and a "model" whose next
// token is a function of the request and position, so that recomputing gives the same tokens.
#pragma once

#include <gtest/gtest.h>

#include <numeric>

#include "scheduler/scheduler.hpp"

namespace pumice::test {

inline const PageKind kFull{"full", StateForm::kFull};
inline const PageKind kLocal{"local", StateForm::kWindow, 32};
inline const PageKind kState{"state", StateForm::kRecurrent};

inline std::vector<uint32_t> tokens_from(uint32_t first, uint32_t count) {
  std::vector<uint32_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

struct SchedulerBed {
  Scheduler scheduler;
  StepCost device{.fixed = 1e-3, .per_row = 1e-4, .per_token = 1e-4};
  double now = 0;
  uint32_t n_right = 0;  // tokens of each draft that are

  SchedulerBed(const SchedulerOptions& options, uint32_t n_pages, const CostModel& cost = {})
      : SchedulerBed(options, KvCacheOptions{.n_pages = n_pages, .block_tokens = 16}, cost) {}
  SchedulerBed(const SchedulerOptions& options, const KvCacheOptions& cache,
               const CostModel& cost = {})
      : scheduler(*Scheduler::create(options, cache, cost)) {}

  RequestId add(std::vector<uint32_t> prompt, uint32_t max_new, RequestSpec spec = {}) {
    spec.prompt = std::move(prompt);
    spec.max_new_tokens = max_new;
    const Result<RequestId> id = scheduler.add(std::move(spec), now);
    EXPECT_TRUE(id.ok()) << id.error().message;
    return *id;
  }

  std::vector<ChunkOutcome> commit(const StepPlan& plan) {
    EXPECT_TRUE(plan.transfers.empty() || scheduler.finish_transfers(plan));
    const double seconds = device.seconds(plan.shape);
    now += seconds;
    std::vector<std::vector<uint32_t>> sampled;
    for (const StepChunk& chunk : plan.chunks) {
      std::vector<uint32_t>& its = sampled.emplace_back();
      for (uint32_t i = chunk.n_tokens - chunk.n_samples; i < chunk.n_tokens; ++i) {
        its.push_back(chunk.request * 100000 + chunk.first_position + i + 1);
      }
      if (its.size() > 1) its.resize(1 + n_right % its.size());
    }
    const std::vector<std::span<const uint32_t>> taken(sampled.begin(), sampled.end());
    auto outcomes = scheduler.commit(plan.id, taken, now, seconds);
    const Status integrity = scheduler.check_integrity();
    EXPECT_TRUE(integrity.ok()) << integrity.error().message;
    return outcomes;
  }

  StepPlan step() {
    StepPlan plan = scheduler.plan_step(now);
    if (!plan.empty()) commit(plan);
    return plan;
  }

  void run_to_idle() {
    for (int i = 0; i < 100000 && !scheduler.idle(); ++i) step();
    EXPECT_TRUE(scheduler.idle());
  }
};

}  // namespace pumice::test
