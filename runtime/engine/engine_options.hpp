// How an engine works: plain data.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>

#include "base/host_memory.hpp"
#include "base/log.hpp"
#include "engine/pace.hpp"
#include "models/lowering.hpp"
#include "scheduler/cost_model.hpp"
#include "scheduler/request.hpp"
#include "shaders/common/kv_layout.hpp"
#include "shaders/common/math.hpp"
#include "shaders/flash_attention/attention_plan.hpp"

namespace pumice {

/// What happens to a request that fills its window while it generates.
enum class OverflowPolicy {
  kStop,            ///< it ends, for reason kWindow
  kShift,           ///< the first `keep_tokens` stay, the older half of the rest goes
  kTruncateOldest,  ///< like kShift with nothing kept; prompts beyond the window lose their start
};

/// How an engine shares a device with others. Budgets of `poll` hold in every mode; these are more.
enum class EngineMode {
  kFast,            ///< as much is submitted at once as a budget allows
  kBesideGraphics,  ///< slices of at most 2 ms, and two of them at a time
  kBackground,      ///< slices of at most 2 ms, each when the device has finished the last
};

struct EngineOptions {
  KvTypes kv_type;                    ///< what keys and values are cached in
  ops::Math math = ops::Math::kAuto;  ///< arithmetic of matrix products
  FusionRules fusion = {};
  uint32_t context_tokens = 0;  ///< positions of one sequence; 0: what the model was trained for
  uint32_t n_sequences = 1;     ///< requests that run at once
  uint32_t kv_blocks = 0;       ///< of 16 positions of KV, each a page of every kind, or a part
                                ///< of one where pages are larger; 0: enough for all sequences
                                ///< at full length
  uint32_t token_budget = 512;  ///< tokens in a step
  uint32_t chunk_tokens = 512;  ///< tokens of one prompt in a step
  double tpot_target_s = 0;     ///< shrinks chunks beside decoding requests; 0: never
  // Who is served before whom: docs/ARCHITECTURE.md, "The service rule", and SchedulerOptions.
  uint32_t max_partial_prefills = 4;  ///< prompts of equal rank that are partly read
  /// Tokens of a step that rows of other classes leave to each class.
  std::array<uint32_t, kServiceClasses> reserved_decode_tokens = {};
  double aging_s = 60;  ///< a class that is not served for so long gets a turn; 0: never
  OverflowPolicy overflow = OverflowPolicy::kStop;
  uint32_t keep_tokens = 1;           ///< of kShift
  bool prefix_cache = true;           ///< reuse the KV of prefixes seen before
  uint64_t cache_host_bytes = 0;      ///< host memory for KV that leaves the device
  HostAllocator host_allocator = {};  ///< of that memory
  std::filesystem::path cache_file =
      {};  ///< prompt cache file to read, and to keep KV in; empty: none
  uint64_t cache_file_bytes = uint64_t{4} << 30;  ///< most to keep in it
  /// Folder of computed prefixes that is shared with other processes (PrefixStore); empty: none.
  /// What comes from it goes through host memory, so cache_host_bytes must not be 0.
  std::filesystem::path prefix_store = {};
  uint64_t prefix_store_bytes = uint64_t{16} << 30;  ///< most in that folder
  CostModel cost = {};                 ///< what steps cost, if known from an earlier run
  std::optional<PaceRates> pace = {};  ///< how long work takes, likewise
  /// Results identical to the bit for every chunking, batch and cache hit on one device; slower,
  /// and always fp32.
  bool invariant = false;
  /// While the driver grants this process less device memory than it uses: what the grant leaves is
  /// a budget, as of Engine::set_memory_budget, but for the KV memory that one request of
  /// `context_tokens` needs, so that requests wait and none fails.
  bool yields_memory = false;
  bool run_ahead = true;       ///< keep two steps under way; never with prompt_logits or profile
  bool prompt_logits = false;  ///< requests may ask for the logits of every position
  /// Rows of logits that a step may have beside one for each sequence: for tokens of drafts, and of
  /// prompts that are scored. Each takes 4 bytes of device memory for each token of the vocabulary
  /// (the default 4 MiB of 128k tokens), as logits share memory with the layers' values.
  uint32_t spare_logit_rows = 8;
  uint32_t split_tokens = 256;  ///< contexts longer than this are attended to in parallel splits
  bool greedy_only = false;     ///< compile no more of sampling than greedy requests need
  /// Whether an engine begins with every kernel compiled; if not, Engine::prewarm compiles them in
  /// pieces, or `poll` and `step` before their first work.
  bool prewarm = true;
  Routing routing = Routing::kChosen;  ///< of mixtures of experts
  bool profile = false;  ///< time every kernel by itself, replay nothing (slower; see `profiler`)
  Logger logger = {};
};

/// Steps that are planned and not finished at most.
inline uint32_t steps_under_way(const EngineOptions& options) {
  return options.run_ahead && !options.prompt_logits && !options.profile ? 2 : 1;
}

/// How attention's work is split, for every class.
inline ops::AttentionPlanOptions attention_options(const EngineOptions& options) {
  ops::AttentionPlanOptions plan{.split_tokens = options.split_tokens,
                                 .row_splits = ops::AttentionPlanOptions::kMostRowSplits};
  if (options.invariant) {
    plan.max_split_rows = UINT32_MAX;
    plan.row_splits = 0;
  }
  return plan;
}

}  // namespace pumice
