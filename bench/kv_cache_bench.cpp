#include "bench/kv_cache_bench.hpp"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <chrono>

#include "bench/statistics.hpp"
#include "bench/timed_request.hpp"
#include "bench/timing.hpp"

namespace pumice::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

constexpr uint32_t kShortest = 32;

Result<KvCacheRow> measure(Engine& engine, uint32_t n_vocab, uint32_t context,
                           const KvCacheOptions& options) {
  KvCacheRow row{.context = context, .kv_bytes = context * engine.kv_bytes_per_token()};
  std::vector<TokenId> tokens = random_prompt(context, n_vocab, context);
  // The first token is the prompt's and the same either way.
  PUMICE_TRY(const Generated cached, generate(engine, tokens, options.tokens + 1, options.stop));
  row.cached_ns.assign(cached.ns.begin() + 1, cached.ns.end());
  for (uint32_t i = 1; i <= options.tokens; ++i) {
    tokens.push_back(cached.tokens[i - 1]);
    PUMICE_TRY(const Generated again, generate(engine, tokens, 1, options.stop));
    row.recomputed_ns.push_back(again.ns[0]);
    row.n_same += again.tokens[0] == cached.tokens[i] ? 1 : 0;
  }
  return row;
}

Status fill(KvCacheReport& report, Engine& engine, uint32_t n_vocab,
            const KvCacheOptions& options) {
  PUMICE_TRY_STATUS(measure(engine, n_vocab, kShortest, options));  // warms up
  const auto start = Clock::now();
  double last_ns = 0;  // of the last row
  for (size_t i = 0; options.contexts.empty() || i < options.contexts.size(); ++i) {
    const uint64_t context =
        options.contexts.empty() ? uint64_t{kShortest} << i : options.contexts[i];
    if (context + options.tokens + 1 > options.most_tokens) break;
    // Twice the context takes up to four times as long.
    const bool fits = ns_since(start) + 3 * last_ns < options.seconds * 1e9;
    if (options.contexts.empty() && !fits) break;
    const auto began = Clock::now();
    PUMICE_TRY(KvCacheRow row, measure(engine, n_vocab, static_cast<uint32_t>(context), options));
    report.rows.push_back(std::move(row));
    last_ns = ns_since(began);
  }
  return {};
}

}  // namespace

KvCacheReport bench_kv_cache(Engine& engine, uint32_t n_vocab, const KvCacheOptions& options) {
  KvCacheReport report;
  const Status status = fill(report, engine, n_vocab, options);
  if (!status.ok()) report.ended = status.error();
  return report;
}

Json to_json(const KvCacheReport& report) {
  Json rows = Json::array();
  for (const KvCacheRow& row : report.rows) {
    const double cached = summarize(row.cached_ns).median;
    const double recomputed = summarize(row.recomputed_ns).median;
    rows.push_back({{"context", row.context},
                    {"kv_bytes", row.kv_bytes},
                    {"cached_samples_ns", row.cached_ns},
                    {"recomputed_samples_ns", row.recomputed_ns},
                    {"cached_median_ns", cached},
                    {"recomputed_median_ns", recomputed},
                    {"cached_ts", 1e9 / cached},
                    {"recomputed_ts", 1e9 / recomputed},
                    {"times_as_fast", recomputed / cached},
                    {"same_tokens", row.n_same}});
  }
  Json json{{"bench", "no-kv-cache"}, {"rows", rows}};
  if (report.ended) json["error"] = report.ended->message;
  return json;
}

std::string to_markdown(const KvCacheReport& report) {
  std::string text =
      "One token after a context, from the KV cache and by computing the whole context again\n\n"
      "| context | cached ms | t/s | recomputed ms | t/s | times as fast | cached, growth | "
      "recomputed, growth | KV MiB | same tokens |\n"
      "| --: | --: | --: | --: | --: | --: | --: | --: | --: | --: |\n";
  const KvCacheRow* before = nullptr;
  for (const KvCacheRow& row : report.rows) {
    const auto growth = [&](const std::vector<double> KvCacheRow::*samples) {
      if (before == nullptr) return std::string();
      return fmt::format("{:.2f}",
                         summarize(row.*samples).median / summarize(before->*samples).median);
    };
    const double cached = summarize(row.cached_ns).median;
    const double recomputed = summarize(row.recomputed_ns).median;
    text += fmt::format(
        "| {} | {:.3f} | {:.1f} | {:.3f} | {:.1f} | {:.1f} | {} | {} | {:.2f} | {}/{} |\n",
        row.context, cached * 1e-6, 1e9 / cached, recomputed * 1e-6, 1e9 / recomputed,
        recomputed / cached, growth(&KvCacheRow::cached_ns), growth(&KvCacheRow::recomputed_ns),
        static_cast<double>(row.kv_bytes) / (1 << 20), row.n_same, row.cached_ns.size());
    before = &row;
  }
  return text;
}

}  // namespace pumice::bench
