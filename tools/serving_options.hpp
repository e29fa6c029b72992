// The flags that say how an engine schedules and caches, and what it counted.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/engine.hpp"
#include "host/host.hpp"

namespace pumice::tools {

struct ServingOptions {
  uint32_t fixed_chunk = 0;
  double tpot_target_ms = 0;
  std::string overflow = "stop";
  uint32_t keep_tokens = 1;
  uint64_t cache_ram_mib = 0;
  std::string prompt_cache;
  std::string prefix_store;
  uint64_t prefix_store_mib = 16384;
  bool no_prefix_cache = false;
  bool invariant = false;
  std::string spec = "off";
  std::string draft_model;
  uint32_t most_drafted = host::Speculation::kMostTokens;
  std::string stats;

  void add_to(CLI::App& app);
  /// Errors: kDoesNotFit (more host memory than the machine has), kInvalidArgument (flags that
  /// contradict one another).
  Status validate() const;
  void apply_to(EngineOptions& options) const;
  host::Speculation speculation() const;
  /// Whether the model is to be opened with its prediction block: HostRequest::predicts.
  bool predicts() const { return spec == "mtp"; }
};

/// Everything the engine counted, as `--stats json` prints it: scheduler, cache, scheduling
/// profile.
nlohmann::json stats_json(const Engine& engine);
/// `stats` is "json" or "text" (to stderr), or empty.
void print_stats(const std::string& stats, const Engine& engine);

}  // namespace pumice::tools
