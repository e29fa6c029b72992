#include "bench/serve.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "bench/build_info.hpp"

namespace pumice {
namespace {

constexpr uint32_t kGpuPromptTokens = 8192;
constexpr double kLongPromptSeconds = 2;
constexpr uint32_t kStreamPrompt = 32;
constexpr uint32_t kStreamWarmUp = 24;  // tokens of a stream before a prompt arrives

/// One engine and the clients of a workload.
class Clients {
 public:
  Clients(std::unique_ptr<Engine> engine, uint32_t n_vocab, const ServeOptions& options)
      : engine_(std::move(engine)), n_vocab_(n_vocab), random_(options.seed), stop_(options.stop) {}

  Engine& engine() { return *engine_; }

  std::vector<TokenId> tokens(uint32_t n) {
    std::vector<TokenId> result(n);
    for (TokenId& token : result) token = static_cast<TokenId>(random_() % n_vocab_);
    return result;
  }

  Result<RequestId> submit(std::vector<TokenId> prompt, uint32_t max_new_tokens) {
    return engine_->submit({.prompt = std::move(prompt), .max_new_tokens = max_new_tokens});
  }

  /// One step; what came is kept by request.
  Status step() {
    if (stop_ && stop_()) return make_error(ErrorCode::kCancelled, "interrupted");
    PUMICE_TRY(const std::vector<StepEvent> events, engine_->step());
    const double now = engine_->now();
    for (const StepEvent& event : events) {
      if (event.token) {
        times_[event.request].push_back(now);
        output_[event.request].push_back(*event.token);
      }
      if (event.report) reports_[event.request] = *event.report;
    }
    return {};
  }

  Status finish(RequestId id) {
    while (!reports_.contains(id)) PUMICE_TRY_STATUS(step());
    return {};
  }

  const RequestReport& report(RequestId id) const { return reports_.at(id); }
  double ttft(RequestId id) const {
    const RequestTimes& times = reports_.at(id).times;
    return times.first_token - times.arrived;
  }
  const std::vector<TokenId>& output(RequestId id) { return output_[id]; }
  /// When the request's tokens came.
  const std::vector<double>& times(RequestId id) { return times_[id]; }
  std::mt19937_64& random() { return random_; }

 private:
  std::unique_ptr<Engine> engine_;
  uint32_t n_vocab_;
  std::mt19937_64 random_;
  std::function<bool()> stop_;
  std::map<RequestId, std::vector<double>> times_;
  std::map<RequestId, std::vector<TokenId>> output_;
  std::map<RequestId, RequestReport> reports_;
};

double percentile(std::vector<double> values, double p) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const auto rank = static_cast<size_t>(std::ceil(p * static_cast<double>(values.size())));
  return values[std::max<size_t>(rank, 1) - 1];
}

void begin(const ServeProgress& progress, const std::string& name) {
  if (progress) progress(name);
}

class ServeBench {
 public:
  ServeBench(std::shared_ptr<vk::PipelineLibrary> pipelines, std::shared_ptr<const Model> model,
             const ServeOptions& options)
      : pipelines_(std::move(pipelines)), model_(std::move(model)), options_(options) {}

  Result<ServeReport> run(const ServeProgress& progress) {
    ServeReport report;
    PUMICE_TRY_STATUS(arrivals(progress, report));
    begin(progress, "a shared system prompt");
    PUMICE_TRY(report.shared, shared_prompt());
    begin(progress, "an agent's growing context");
    PUMICE_TRY(report.agent, agent());
    begin(progress, "random cancels");
    PUMICE_TRY(report.cancels, cancels());
    begin(progress, "a repeated long prompt");
    PUMICE_TRY(report.repeat, repeat());
    return report;
  }

  /// Fills in what streams beside a long prompt see.
  Status arrivals(const ServeProgress& progress, ServeReport& report) {
    begin(progress, "calibration");
    PUMICE_TRY_STATUS(measure_device());
    report.long_prompt_tokens = long_tokens_;

    begin(progress, "a long prompt in one piece");
    PUMICE_TRY(const ArrivalRow monolithic, arrival("monolithic", long_tokens_, 0, report));
    report.arrivals = {monolithic};
    for (const uint32_t chunk : options_.chunk_tokens) {
      if (chunk >= long_tokens_) continue;
      begin(progress, fmt::format("chunks of {}", chunk));
      PUMICE_TRY(const ArrivalRow row, arrival(std::to_string(chunk), chunk, 0, report));
      report.arrivals.push_back(row);
    }
    const double target =
        options_.tpot_target_s > 0 ? options_.tpot_target_s : default_tpot_target(report.arrivals);
    begin(progress, "adaptive chunks");
    PUMICE_TRY(const ArrivalRow adaptive, arrival("adaptive", long_tokens_, target, report));
    report.arrivals.insert(report.arrivals.begin(), adaptive);
    return {};
  }

 private:
  Result<Clients> clients(EngineOptions engine) const {
    engine.kv_type = options_.kv_type;
    engine.math = options_.math;
    engine.greedy_only = true;
    engine.cost = cost_;
    PUMICE_TRY(std::unique_ptr<Engine> made, Engine::create(pipelines_, model_, engine));
    return Clients(std::move(made), model_->program.n_vocab, options_);
  }

  uint32_t arrival_window() const { return kStreamPrompt + long_tokens_ + 4096; }
  /// What steps cost here, and from that the long prompt.
  Status measure_device() {
    PUMICE_TRY(Clients clients, this->clients({.context_tokens = 1024,
                                               .n_sequences = options_.n_streams,
                                               .token_budget = 512}));
    PUMICE_TRY_STATUS(clients.engine().calibrate());
    cost_ = clients.engine().scheduler().cost();
    long_tokens_ = options_.long_prompt_tokens;
    if (long_tokens_ == 0) {
      StepShape shape;
      shape.add_prefill(0, 512);
      const double rate = 512 / std::max(cost_.predict(shape), 1e-9);
      const double tokens = std::clamp(rate * kLongPromptSeconds, 512.0, double{kGpuPromptTokens});
      long_tokens_ = static_cast<uint32_t>(tokens) / 128 * 128;
    }
    return {};
  }

  Result<ArrivalRow> arrival(const std::string& name, uint32_t chunk_tokens, double target_s,
                             ServeReport& report) const {
    const uint32_t window = arrival_window();
    PUMICE_TRY(Clients clients,
               this->clients({.context_tokens = window,
                              .n_sequences = options_.n_streams + 1,
                              .kv_blocks = (options_.n_streams * 4096 + window) / kKvBlockTokens,
                              .token_budget = chunk_tokens + options_.n_streams + kKvBlockTokens,
                              .chunk_tokens = chunk_tokens,
                              .tpot_target_s = target_s}));
    std::vector<RequestId> streams;
    for (uint32_t i = 0; i < options_.n_streams; ++i) {
      PUMICE_TRY(const RequestId id, clients.submit(clients.tokens(kStreamPrompt), 3500));
      streams.push_back(id);
    }
    while (clients.times(streams.back()).size() < kStreamWarmUp) PUMICE_TRY_STATUS(clients.step());
    const auto gaps_since = [&](double start) {
      std::vector<double> gaps;
      for (const RequestId id : streams) {
        const std::vector<double>& times = clients.times(id);
        for (size_t i = 1; i < times.size(); ++i) {
          if (times[i] >= start) gaps.push_back(times[i] - times[i - 1]);
        }
      }
      return gaps;
    };
    ArrivalRow row{.chunk = name, .target_s = target_s};
    row.idle_gap_s = percentile(gaps_since(clients.times(streams.back())[8]), 0.5);

    const double start = clients.engine().now();
    const uint64_t computed = clients.engine().scheduler().telemetry().computed_tokens;
    PUMICE_TRY(const RequestId prompt, clients.submit(clients.tokens(long_tokens_), 1));
    PUMICE_TRY_STATUS(clients.finish(prompt));
    const double seconds = clients.engine().now() - start;
    const std::vector<double> gaps = gaps_since(start);
    row.ttft_s = clients.ttft(prompt);
    row.gap_p50_s = percentile(gaps, 0.5);
    row.gap_p99_s = percentile(gaps, 0.99);
    row.gap_max_s = percentile(gaps, 1);
    row.prefill_iterations = clients.report(prompt).prefill_iterations;
    const Telemetry& telemetry = clients.engine().scheduler().telemetry();
    row.tokens_per_s = static_cast<double>(telemetry.computed_tokens - computed) / seconds;
    if (target_s > 0) {
      report.profile = clients.engine().scheduler().profile_json();
      report.telemetry = telemetry_to_json(telemetry, clients.engine().kv_bytes_per_token());
    }
    return row;
  }

  Result<SharedPromptResult> shared_prompt() const {
    SharedPromptResult result{.system_tokens = std::max(64u, long_tokens_ / 4)};
    const uint32_t window = result.system_tokens + 128;
    PUMICE_TRY(Clients clients,
               this->clients({.context_tokens = window, .kv_blocks = 8 * window / kKvBlockTokens}));
    const std::vector<TokenId> system = clients.tokens(result.system_tokens);
    std::vector<double> ttft;
    for (int user = 0; user < 8; ++user) {
      std::vector<TokenId> prompt = system;
      const std::vector<TokenId> question = clients.tokens(24);
      prompt.insert(prompt.end(), question.begin(), question.end());
      PUMICE_TRY(const RequestId id, clients.submit(prompt, 8));
      PUMICE_TRY_STATUS(clients.finish(id));
      ttft.push_back(clients.ttft(id));
      result.warm_cached = static_cast<double>(clients.report(id).cache.cached_tokens) /
                           static_cast<double>(prompt.size());
    }
    result.cold_ttft_s = ttft.front();
    result.warm_ttft_s = percentile({ttft.begin() + 1, ttft.end()}, 0.5);
    return result;
  }

  Result<std::vector<AgentTurn>> agent() const {
    constexpr uint32_t kTurns = 6;
    const uint32_t growth = std::max(32u, long_tokens_ / 16);
    const uint32_t window = kTurns * (growth + 16) + 16;
    PUMICE_TRY(Clients cached,
               clients({.context_tokens = window, .kv_blocks = 2 * window / kKvBlockTokens}));
    PUMICE_TRY(Clients uncached, clients({.context_tokens = window, .prefix_cache = false}));
    std::vector<AgentTurn> turns;
    std::vector<TokenId> context;
    for (uint32_t turn = 0; turn < kTurns; ++turn) {
      const std::vector<TokenId> more = cached.tokens(growth);
      context.insert(context.end(), more.begin(), more.end());
      PUMICE_TRY(const RequestId id, cached.submit(context, 16));
      PUMICE_TRY_STATUS(cached.finish(id));
      PUMICE_TRY(const RequestId again, uncached.submit(context, 1));
      PUMICE_TRY_STATUS(uncached.finish(again));
      turns.push_back({static_cast<uint32_t>(context.size()), cached.report(id).cache.cached_tokens,
                       cached.ttft(id), uncached.ttft(again)});
      const std::vector<TokenId>& answer = cached.output(id);
      context.insert(context.end(), answer.begin(), answer.end());
    }
    return turns;
  }

  Result<CancelResult> cancels() const {
    const uint32_t window = 512;
    PUMICE_TRY(Clients clients,
               this->clients({.context_tokens = window, .n_sequences = options_.n_streams}));
    CancelResult result{.n_requests = options_.n_requests};
    std::vector<RequestId> live;
    uint32_t submitted = 0;
    auto& random = clients.random();
    while (submitted < options_.n_requests || !live.empty()) {
      if (submitted < options_.n_requests) {
        const auto length = static_cast<uint32_t>(16 + random() % 256);
        PUMICE_TRY(const RequestId id, clients.submit(clients.tokens(length), 32));
        live.push_back(id);
        ++submitted;
      }
      for (uint64_t steps = random() % 4; steps > 0; --steps) PUMICE_TRY_STATUS(clients.step());
      if (live.size() > options_.n_streams || submitted == options_.n_requests) {
        const size_t victim = random() % live.size();
        if (clients.engine().cancel(live[victim])) ++result.n_cancelled;
        live.erase(live.begin() + static_cast<ptrdiff_t>(victim));
      }
    }
    const KvCache& cache = clients.engine().scheduler().cache();
    result.blocks_free = cache.n_free_pages();
    result.blocks = cache.n_pages();
    result.cancelled_kv_bytes = clients.engine().scheduler().telemetry().cancelled_kv_tokens *
                                clients.engine().kv_bytes_per_token();
    return result;
  }

  Result<RepeatResult> repeat() const {
    RepeatResult result{.prompt_tokens = long_tokens_};
    const uint32_t window = long_tokens_ + 32;
    PUMICE_TRY(Clients clients,
               this->clients({.context_tokens = window, .kv_blocks = 3 * window / kKvBlockTokens}));
    const std::vector<TokenId> prompt = clients.tokens(long_tokens_);
    PUMICE_TRY(const RequestId cold, clients.submit(prompt, 2));
    PUMICE_TRY_STATUS(clients.finish(cold));
    result.cold_ttft_s = clients.ttft(cold);
    std::vector<double> cached;
    for (int i = 0; i < 5; ++i) {
      PUMICE_TRY(const RequestId id, clients.submit(prompt, 2));
      PUMICE_TRY_STATUS(clients.finish(id));
      cached.push_back(clients.ttft(id));
    }
    result.cached_ttft_s = percentile(cached, 0.5);
    std::vector<double> look_ups;
    for (int i = 0; i < 9; ++i) {
      const std::vector<TokenId> other = clients.tokens(long_tokens_);
      const KvCache& cache = clients.engine().scheduler().cache();
      const auto start = std::chrono::steady_clock::now();
      const HashedPrompt hashed = cache.hash_prompt(other);
      const CacheReport found = cache.look_up(hashed);
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
      if (found.cached_tokens == 0) look_ups.push_back(elapsed.count());
    }
    result.look_up_s = percentile(look_ups, 0.5);
    return result;
  }

  std::shared_ptr<vk::PipelineLibrary> pipelines_;
  std::shared_ptr<const Model> model_;
  ServeOptions options_;
  CostModel cost_;
  uint32_t long_tokens_ = 0;
};

}  // namespace

Result<ServeReport> run_serve_bench(const std::shared_ptr<vk::PipelineLibrary>& pipelines,
                                    const std::shared_ptr<const Model>& model,
                                    const ServeOptions& options, const ServeProgress& progress) {
  return ServeBench(pipelines, model, options).run(progress);
}

Result<ServeReport> run_arrivals(const std::shared_ptr<vk::PipelineLibrary>& pipelines,
                                 const std::shared_ptr<const Model>& model,
                                 const ServeOptions& options, const ServeProgress& progress) {
  ServeReport report;
  PUMICE_TRY_STATUS(ServeBench(pipelines, model, options).arrivals(progress, report));
  return report;
}

double default_tpot_target(std::span<const ArrivalRow> others) {
  double target = 0;
  double shortest_p99 = std::numeric_limits<double>::infinity();
  for (const ArrivalRow& row : others) {
    target = std::max(target, 3 * row.idle_gap_s);
    shortest_p99 = std::min(shortest_p99, row.gap_p99_s);
  }
  return std::isfinite(shortest_p99) ? std::max(target, shortest_p99) : target;
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SharedPromptResult, system_tokens, cold_ttft_s, warm_ttft_s,
                                   warm_cached)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(AgentTurn, prompt_tokens, cached_tokens, ttft_s, ttft_uncached_s)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RepeatResult, prompt_tokens, cold_ttft_s, cached_ttft_s,
                                   look_up_s)

nlohmann::json serve_report_json(const ServeReport& report) {
  using Json = nlohmann::json;
  Json arrivals = Json::array();
  for (const ArrivalRow& row : report.arrivals) {
    arrivals.push_back({{"chunk", row.chunk},
                        {"tpot_target_s", row.target_s},
                        {"ttft_s", row.ttft_s},
                        {"itl_p50_s", row.gap_p50_s},
                        {"itl_p99_s", row.gap_p99_s},
                        {"itl_max_s", row.gap_max_s},
                        {"idle_itl_s", row.idle_gap_s},
                        {"prefill_iterations", row.prefill_iterations},
                        {"tokens_per_s", row.tokens_per_s}});
  }
  return {{"bench", "serve"},
          {"build_commit", bench::build_commit()},
          {"build_dirty", bench::build_is_dirty()},
          {"long_prompt_tokens", report.long_prompt_tokens},
          {"arrivals", arrivals},
          {"shared_prompt", report.shared},
          {"agent", report.agent},
          {"cancels",
           {{"requests", report.cancels.n_requests},
            {"cancelled", report.cancels.n_cancelled},
            {"blocks", report.cancels.blocks},
            {"blocks_free", report.cancels.blocks_free},
            {"cancelled_partial_kv_bytes", report.cancels.cancelled_kv_bytes}}},
          {"repeat", report.repeat},
          {"profile", report.profile},
          {"telemetry", report.telemetry}};
}

std::string serve_report_text(const ServeReport& report) {
  std::string text = fmt::format(
      "A prompt of {} tokens arrives while streams decode\n\n"
      "| chunk | TTFT ms | gap p50 ms | p99 ms | max ms | idle gap ms | iterations | tok/s |\n"
      "|---|---|---|---|---|---|---|---|\n",
      report.long_prompt_tokens);
  for (const ArrivalRow& row : report.arrivals) {
    const std::string name =
        row.target_s > 0 ? fmt::format("{} ({:.1f} ms)", row.chunk, row.target_s * 1e3) : row.chunk;
    text +=
        fmt::format("| {} | {:.1f} | {:.2f} | {:.2f} | {:.2f} | {:.2f} | {} | {:.0f} |\n", name,
                    row.ttft_s * 1e3, row.gap_p50_s * 1e3, row.gap_p99_s * 1e3, row.gap_max_s * 1e3,
                    row.idle_gap_s * 1e3, row.prefill_iterations, row.tokens_per_s);
  }
  const SharedPromptResult& shared = report.shared;
  text += fmt::format(
      "\nA system prompt of {} tokens shared by users: TTFT {:.1f} ms cold, {:.1f} ms warm "
      "({:.0f} % of the prompt cached)\n",
      shared.system_tokens, shared.cold_ttft_s * 1e3, shared.warm_ttft_s * 1e3,
      100 * shared.warm_cached);
  text +=
      "\nAn agent's growing context\n\n| prompt tokens | cached | TTFT ms | without cache ms |\n"
      "|---|---|---|---|\n";
  for (const AgentTurn& turn : report.agent) {
    text += fmt::format("| {} | {} | {:.1f} | {:.1f} |\n", turn.prompt_tokens, turn.cached_tokens,
                        turn.ttft_s * 1e3, turn.ttft_uncached_s * 1e3);
  }
  const RepeatResult& repeat = report.repeat;
  text += fmt::format(
      "\nThe long prompt again: TTFT {:.2f} ms cached, {:.1f} ms cold ({:.2f} %); hashing and "
      "looking up an unknown one takes {:.3f} ms ({:.3f} % of reading it)\n",
      repeat.cached_ttft_s * 1e3, repeat.cold_ttft_s * 1e3,
      100 * repeat.cached_ttft_s / repeat.cold_ttft_s, repeat.look_up_s * 1e3,
      100 * repeat.look_up_s / repeat.cold_ttft_s);
  const CancelResult& cancels = report.cancels;
  text += fmt::format(
      "\n{} requests, {} cancelled at random moments: {} of {} blocks free, {} bytes of half-read "
      "prompts given back\n",
      cancels.n_requests, cancels.n_cancelled, cancels.blocks_free, cancels.blocks,
      cancels.cancelled_kv_bytes);
  return text;
}

}  // namespace pumice
