// `pumice bench --no-kv-cache`: what the KV cache saves, beside generation that computes the whole
// context again for every token.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.hpp"

namespace pumice::bench {

struct KvCacheOptions {
  /// Contexts to measure, rising; empty: 32 and its doubles for as long as time allows.
  std::vector<uint32_t> contexts;
  double seconds = 20;         ///< begin no context that would end later
  uint32_t tokens = 5;         ///< generated at each
  uint32_t most_tokens = 0;    ///< of context and generated ones: what the engine has
  std::function<bool()> stop;  ///< asked between steps
};

/// The tokens after one context, each computed from the cache and from nothing.
struct KvCacheRow {
  uint32_t context = 0;
  uint64_t kv_bytes = 0;              ///< of the context
  std::vector<double> cached_ns;      ///< of each token
  std::vector<double> recomputed_ns;  ///< likewise, of the same tokens
  uint32_t n_same = 0;  ///< tokens that came out alike; others had two that were equally likely
};

struct KvCacheReport {
  std::vector<KvCacheRow> rows;
  std::optional<Error> ended;  ///< why there are fewer
};

/// The engine must keep no prefixes and have nothing to do. Never fails: errors are in the report.
KvCacheReport bench_kv_cache(Engine& engine, uint32_t n_vocab, const KvCacheOptions& options);

nlohmann::json to_json(const KvCacheReport& report);
std::string to_markdown(const KvCacheReport& report);

}  // namespace pumice::bench
