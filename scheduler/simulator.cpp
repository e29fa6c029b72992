#include "scheduler/simulator.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <limits>

namespace pumice {
namespace {

/// In a keyed cache the values of tokens mean nothing.
constexpr uint32_t kAnyToken[] = {0};

struct VirtualRun {
  Scheduler scheduler;
  StepCost device;
  double now = 0;
  std::vector<std::span<const uint32_t>> taken = {};

  /// Run one step; false when there was nothing to run.
  bool step(std::vector<ChunkOutcome>& outcomes) {
    const StepPlan plan = scheduler.plan_step(now);
    outcomes.clear();
    if (plan.empty()) return false;
    const double seconds = device.seconds(plan.shape);
    now += seconds;
    taken.clear();
    for (const StepChunk& chunk : plan.chunks) {
      taken.push_back(std::span(kAnyToken).first(chunk.n_samples));
    }
    outcomes = scheduler.commit(plan.id, taken, now, seconds);
    return true;
  }
};

bool meets_objectives(const Request& request, const SimulationOptions& options) {
  const RequestTimes& times = request.times;
  const double ttft = times.first_token - times.arrived;
  const double tpot = request.generated_tokens > 1
                          ? (times.last_token - times.first_token) / (request.generated_tokens - 1)
                          : 0;
  return (options.goodput_ttft_s == 0 || ttft <= options.goodput_ttft_s) &&
         (options.goodput_tpot_s == 0 || tpot <= options.goodput_tpot_s);
}

KvCacheOptions cache_options(const Trace& trace, const SimulationOptions& options) {
  return {.n_pages = options.n_pages,
          .block_tokens = trace.block_tokens,
          .kinds = options.kinds,
          .kept_states = options.kept_states,
          .keyed = true};
}

/// Compute a whole prompt, with steps that end where states are kept. False: there is no room.
bool compute_prompt(KvCache& cache, SequenceId id, uint32_t n_tokens) {
  for (uint32_t position = cache.computed_tokens(id); position < n_tokens;) {
    const uint32_t end = std::min(n_tokens, cache.next_kept_state(id, position));
    if (!cache.reserve(id, end).ok()) return false;
    cache.plan(id, end);
    cache.commit(id, end);
    position = end;
  }
  return true;
}

}  // namespace

Result<SimulationReport> simulate(const Trace& trace, const SimulationOptions& options,
                                  const SimulationProgress& progress) {
  const auto start = std::chrono::steady_clock::now();
  PUMICE_TRY(Scheduler scheduler,
             Scheduler::create(options.scheduler, cache_options(trace, options),
                               options.calibrated ? CostModel(options.device) : CostModel()));
  VirtualRun run{std::move(scheduler), options.device};
  SimulationReport report;
  report.n_requests = trace.requests.size();
  size_t next = 0;
  size_t done = 0;
  size_t good = 0;
  std::vector<ChunkOutcome> outcomes;
  const auto arrival_s = [&](size_t i) { return trace.requests[i].arrival_s / options.speed_up; };
  while (next < trace.requests.size() || !run.scheduler.idle()) {
    for (; next < trace.requests.size() && arrival_s(next) <= run.now; ++next) {
      const TraceRequest& request = trace.requests[next];
      const Result<RequestId> id =
          run.scheduler.add({.keys = request.keys,
                             .n_keyed_tokens = request.prompt_tokens,
                             .max_new_tokens = std::max(1u, request.output_tokens)},
                            arrival_s(next));
      if (!id.ok()) ++report.n_refused;
      done += id.ok() ? 0 : 1;
    }
    if (!run.step(outcomes)) {
      if (next < trace.requests.size()) run.now = std::max(run.now, arrival_s(next));
      continue;
    }
    for (const ChunkOutcome& outcome : outcomes) {
      if (!outcome.ended) continue;
      good += meets_objectives(run.scheduler.request(outcome.request), options) ? 1 : 0;
      run.scheduler.remove(outcome.request);
      ++done;
      if (progress && done % 64 == 0 && !progress(done, trace.requests.size())) {
        return make_error(ErrorCode::kCancelled, "interrupted");
      }
    }
  }
  report.telemetry = run.scheduler.telemetry();
  report.cache = run.scheduler.cache().stats();
  report.virtual_s = run.now;
  if (run.now > 0) {
    const auto generated = static_cast<double>(report.telemetry.generated_tokens);
    report.output_tokens_per_s = generated / run.now;
    report.total_tokens_per_s =
        (generated + static_cast<double>(report.telemetry.prompt_tokens)) / run.now;
    report.goodput_requests_per_s = static_cast<double>(good) / run.now;
  }
  if (report.cache.queried_blocks > 0) {
    report.hit_rate = static_cast<double>(report.cache.matched_blocks) /
                      static_cast<double>(report.cache.queried_blocks);
  }
  report.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

PrefixHits find_prefix_hits(const Trace& trace, const SimulationOptions& options) {
  KvCache cache(cache_options(trace, options));
  PrefixHits hits;
  for (const TraceRequest& request : trace.requests) {
    HashedPrompt prompt = cache.hash_keys(request.keys, request.prompt_tokens);
    hits.prompt_blocks += request.keys.size();
    const Result<SequenceId> sequence = cache.begin(prompt, request.prompt_tokens);
    if (!sequence.ok()) continue;  // longer than the pool: nothing of it is found
    const uint32_t shared = cache.report(*sequence).shared_tokens;
    if (compute_prompt(cache, *sequence, request.prompt_tokens)) {
      hits.matched_blocks += shared / trace.block_tokens;
    }
    cache.release(*sequence);
  }
  hits.cache = cache.stats();
  return hits;
}

Result<std::vector<TradeOff>> sweep_chunks(const TradeOffOptions& options) {
  std::vector<TradeOff> rows;
  for (const uint32_t streams : options.active_decodes) {
    for (const uint32_t chunk : options.chunk_tokens) {
      const uint32_t budget = streams + options.prompt_tokens + options.block_tokens;
      SchedulerOptions scheduler_options{.token_budget = budget,
                                         .chunk_tokens = chunk == 0 ? budget : chunk,
                                         .tpot_target_s = chunk == 0 ? options.tpot_target_s : 0,
                                         .max_running = streams + 1};
      PUMICE_TRY(Scheduler scheduler, Scheduler::create(scheduler_options,
                                                        {.n_pages = kUnlimitedPages,
                                                         .block_tokens = options.block_tokens,
                                                         .keyed = true},
                                                        CostModel(options.device)));
      VirtualRun run{std::move(scheduler), options.device};
      std::vector<ChunkOutcome> outcomes;
      uint64_t next_key = 0;  // nothing is shared
      const auto add = [&](uint32_t prompt_tokens, uint32_t max_new_tokens) {
        std::vector<uint64_t> keys(prompt_tokens / options.block_tokens);
        std::ranges::generate(keys, [&] { return next_key++; });
        return run.scheduler.add({.keys = std::move(keys),
                                  .n_keyed_tokens = prompt_tokens,
                                  .max_new_tokens = max_new_tokens},
                                 run.now);
      };
      for (uint32_t i = 0; i < streams; ++i) {
        PUMICE_TRY_STATUS(add(options.stream_context, 1u << 30));
      }
      while (run.scheduler.n_waiting() > 0 ||
             run.scheduler.telemetry().generated_tokens < streams) {
        if (!run.step(outcomes)) break;
      }
      Histogram ttft;
      Histogram gaps;
      const double start = run.now;
      const uint64_t before = run.scheduler.telemetry().computed_tokens;
      for (uint32_t i = 0; i < options.n_prompts; ++i) {
        PUMICE_TRY(const RequestId id, add(options.prompt_tokens, 1));
        while (!run.scheduler.request(id).ended()) {
          const double step_start = run.now;
          run.step(outcomes);
          if (streams > 0) gaps.add(run.now - step_start, streams);
        }
        const RequestTimes& times = run.scheduler.request(id).times;
        ttft.add(times.first_token - times.arrived);
        run.scheduler.remove(id);
      }
      const uint64_t computed = run.scheduler.telemetry().computed_tokens - before;
      rows.push_back({chunk, streams, ttft.percentile(0.5), gaps.percentile(0.99),
                      static_cast<double>(computed) / (run.now - start)});
    }
  }
  return rows;
}

namespace {

/// Requests of which none shares anything with another.
struct Crowd {
  VirtualRun run;
  uint32_t block_tokens;
  uint64_t next_key = 0;
  std::vector<ChunkOutcome> outcomes = {};

  static Result<Crowd> create(const LatecomerOptions& options, uint32_t max_running) {
    SchedulerOptions scheduler_options = options.scheduler;
    scheduler_options.max_running = max_running;
    PUMICE_TRY(Scheduler scheduler, Scheduler::create(scheduler_options,
                                                      {.n_pages = options.n_pages,
                                                       .block_tokens = options.block_tokens,
                                                       .keyed = true},
                                                      CostModel(options.device)));
    return Crowd{{std::move(scheduler), options.device}, options.block_tokens};
  }
  Result<RequestId> add(ServiceClass service_class, uint32_t prompt_tokens,
                        uint32_t max_new_tokens) {
    std::vector<uint64_t> keys(prompt_tokens / block_tokens);
    std::ranges::generate(keys, [&] { return next_key++; });
    return run.scheduler.add({.keys = std::move(keys),
                              .n_keyed_tokens = prompt_tokens,
                              .max_new_tokens = max_new_tokens,
                              .service_class = service_class},
                             run.now);
  }
  bool has_token(RequestId id) const { return run.scheduler.request(id).generated_tokens > 0; }
  /// Steps it took; all of them where there is no end.
  uint32_t run_to_first_token(RequestId id) {
    constexpr uint32_t kMost = 10'000'000;
    uint32_t n_steps = 0;
    while (n_steps < kMost && !has_token(id) && run.step(outcomes)) ++n_steps;
    return n_steps;
  }
};

/// New tokens: so many that none ends before the latecomer is served, as far as blocks allow.
uint32_t for_ever(const LatecomerOptions& options, uint32_t prompt_tokens) {
  constexpr uint32_t kForEver = 1u << 24;
  const uint64_t most = uint64_t{options.n_pages} * options.block_tokens;
  return most < prompt_tokens + kForEver
             ? static_cast<uint32_t>(most - std::min<uint64_t>(most, prompt_tokens))
             : kForEver;
}

Result<Latecomer> latecomer(const LatecomerOptions& options, uint32_t n_batch, bool long_prompt) {
  PUMICE_TRY(Crowd crowd, Crowd::create(options, std::max(options.n_batch, 1u)));
  std::string amid;
  for (uint32_t i = 0; i < n_batch; ++i) {
    PUMICE_TRY(const RequestId id, crowd.add(ServiceClass::kBatch, options.batch_tokens,
                                             for_ever(options, options.batch_tokens)));
    (void)crowd.run_to_first_token(id);
  }
  if (n_batch > 0) amid = fmt::format("{} batch requests", n_batch);
  if (long_prompt) {
    PUMICE_TRY_STATUS(crowd.add(ServiceClass::kInteractive, options.long_prompt_tokens, 1));
    crowd.run.step(crowd.outcomes);
    amid += fmt::format("{}a prompt of {} tokens", amid.empty() ? "" : " and ",
                        options.long_prompt_tokens);
  }
  Latecomer row{.amid = amid.empty() ? "nobody" : amid};
  const uint64_t before = crowd.run.scheduler.telemetry().preemptions;
  PUMICE_TRY(const RequestId id, crowd.add(ServiceClass::kInteractive, options.prompt_tokens, 1));
  row.steps = crowd.run_to_first_token(id);
  const RequestTimes& times = crowd.run.scheduler.request(id).times;
  row.ttft_s = times.first_token - times.arrived;
  row.preemptions = crowd.run.scheduler.telemetry().preemptions - before;
  return row;
}

Result<double> batch_ttft(const LatecomerOptions& options) {
  if (options.scheduler.aging_s == 0) return std::numeric_limits<double>::infinity();
  PUMICE_TRY(Crowd crowd, Crowd::create(options, 1));
  PUMICE_TRY(const RequestId stream, crowd.add(ServiceClass::kInteractive, options.prompt_tokens,
                                               for_ever(options, options.prompt_tokens)));
  (void)crowd.run_to_first_token(stream);
  PUMICE_TRY(const RequestId id, crowd.add(ServiceClass::kBatch, options.batch_tokens, 1));
  (void)crowd.run_to_first_token(id);
  if (!crowd.has_token(id)) return std::numeric_limits<double>::infinity();
  const RequestTimes& times = crowd.run.scheduler.request(id).times;
  return times.first_token - times.arrived;
}

}  // namespace

Result<LatecomerReport> simulate_latecomer(const LatecomerOptions& options) {
  LatecomerReport report;
  for (const bool long_prompt : {false, true}) {
    for (const uint32_t n_batch : {0u, options.n_batch}) {
      PUMICE_TRY(Latecomer row, latecomer(options, n_batch, long_prompt));
      report.rows.push_back(std::move(row));
    }
  }
  PUMICE_TRY(report.batch_ttft_s, batch_ttft(options));
  return report;
}

}  // namespace pumice
