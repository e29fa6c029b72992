// The flags that say how an engine schedules and caches, and the files where it remembers.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "engine/engine.hpp"
#include "tools/session.hpp"

namespace pumice::tools {

struct ServingOptions {
  uint32_t fixed_chunk = 0;
  double tpot_target_ms = 0;
  std::string overflow = "stop";
  uint32_t keep_tokens = 1;
  uint64_t cache_ram_mib = 0;
  std::string prompt_cache;
  bool no_prefix_cache = false;
  bool invariant = false;
  std::string stats;

  void add_to(CLI::App& app);
  /// Errors (kDoesNotFit): more host memory than the machine has.
  Status validate() const;
  void apply_to(EngineOptions& options) const;
};

/// An engine whose cost model continues where the last run on this device and model left off; with
/// a target for the time between tokens and nothing known, it is calibrated first. Errors: those of
/// Session::make_engine; kInvalidArgument for a target this device cannot meet with one row.
Result<std::unique_ptr<Engine>> make_serving_engine(const Session& session, EngineOptions options,
                                                    const Logger& logger);

/// At the end of a run: keep what the engine learned, and the prompt cache file if it has one. What
/// fails is logged.
void keep_for_next_run(const Session& session, Engine& engine, const Logger& logger);

/// Everything the engine counted, as `--stats json` prints it: scheduler, cache, scheduling
/// profile.
nlohmann::json stats_json(const Engine& engine);
/// `stats` is "json" or "text" (to stderr), or empty.
void print_stats(const std::string& stats, const Engine& engine);

}  // namespace pumice::tools
