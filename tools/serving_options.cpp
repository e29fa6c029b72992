#include "tools/serving_options.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/memory.hpp"
#include "base/path.hpp"
#include "tools/flags.hpp"
#include "tools/model_options.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {
namespace {

constexpr uint32_t kMostDrafted = 64;
constexpr uint64_t kLeastStoreRam_mib = 256;  // that --prefix-store goes through

}  // namespace

void ServingOptions::add_to(CLI::App& app) {
  app.option_defaults()->group("Scheduling and cache");
  app.add_option("--chunk", fixed_chunk,
                 "Prompt tokens computed in one step, exactly; --tpot-target then has no effect")
      ->envname("PUMICE_CHUNK")
      ->check(CLI::Range(1u, 1u << 16));
  add_number(app, "--tpot-target", tpot_target_ms, 0, kMostNumber,
             "Milliseconds between tokens that reading prompts should not exceed: chunks shrink "
             "beside decoding requests (0: chunks stay as large as -ub)")
      ->envname("PUMICE_TPOT_TARGET");
  add_choice(app, "--overflow", overflow, {"stop", "shift", "truncate-oldest"},
             "When generation fills the context: stop; shift (drop the older half but --keep "
             "tokens, and go on); truncate-oldest (the same with nothing kept; a prompt that is "
             "too long loses its start)")
      ->envname("PUMICE_OVERFLOW");
  add_number(app, "--keep", keep_tokens, 0u, 1u << 24, "First tokens that --overflow shift keeps")
      ->envname("PUMICE_KEEP");
  add_number(app, "--cache-ram", cache_ram_mib, uint64_t{0}, uint64_t{1} << 24,
             "Host memory, in MiB, for cached context that leaves the device")
      ->envname("PUMICE_CACHE_RAM");
  app.add_option("--prompt-cache", prompt_cache,
                 "File that keeps computed context from run to run (created if missing)")
      ->envname("PUMICE_PROMPT_CACHE");
  app.add_option("--prefix-store", prefix_store,
                 "Folder of computed context that any number of processes share, also on a file "
                 "system that several machines mount (created if missing). What comes from it "
                 "goes through --cache-ram, which is then at least 256 MiB")
      ->envname("PUMICE_PREFIX_STORE");
  add_number(app, "--prefix-store-size", prefix_store_mib, uint64_t{1}, uint64_t{1} << 40,
             "Most of --prefix-store, in MiB: what was used longest ago is removed")
      ->envname("PUMICE_PREFIX_STORE_SIZE");
  app.add_flag("--no-prefix-cache", no_prefix_cache, "Compute every prompt from its start")
      ->envname("PUMICE_NO_PREFIX_CACHE");
  add_invariant(app, invariant);
  add_choice(
      app, "--spec", spec, {"off", "ngram", "auto", "draft", "mtp"},
      "Guess what comes next, so that steps bring several tokens where guesses are right; the "
      "text is the same: ngram (what followed the last tokens where the prompt or the answer "
      "had them before), auto (the same, as far as it is expected to be faster), draft (what "
      "the model of -md says), mtp (what the prediction block of the model's own file says)")
      ->envname("PUMICE_SPEC");
  app.add_option("--model-draft,--md", draft_model,
                 "With --spec draft: GGUF file of a small model with the same vocabulary")
      ->envname("PUMICE_MODEL_DRAFT");
  add_number(app, "--draft-max", most_drafted, 1u, kMostDrafted, "Most tokens of a guess")
      ->envname("PUMICE_DRAFT_MAX");
  app.add_option("--stats", stats, "Print what the scheduler and the cache counted: text or json")
      ->expected(0, 1)
      ->default_str("text")
      ->check(CLI::IsMember({"text", "json"}));
  app.option_defaults()->group(kDefaultGroup);
}

Status ServingOptions::validate() const {
  if (spec == "draft" && draft_model.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "--spec draft: name the draft model with -md");
  }
  if (spec != "draft" && !draft_model.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "-md is the model of --spec draft; here --spec is {}", spec);
  }
  if (!prefix_store.empty() && no_prefix_cache) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--prefix-store keeps what --no-prefix-cache forgets: leave one of them out");
  }
  const uint64_t memory_mib = physical_memory_bytes() >> 20;
  if (memory_mib == 0 || cache_ram_mib <= memory_mib) return {};
  return make_error(ErrorCode::kDoesNotFit, "--cache-ram {} MiB: this machine has {} MiB of memory",
                    cache_ram_mib, memory_mib);
}

void ServingOptions::apply_to(EngineOptions& options) const {
  if (fixed_chunk != 0) options.chunk_tokens = fixed_chunk;
  options.tpot_target_s = fixed_chunk != 0 ? 0 : tpot_target_ms / 1e3;
  options.overflow = overflow == "shift"             ? OverflowPolicy::kShift
                     : overflow == "truncate-oldest" ? OverflowPolicy::kTruncateOldest
                                                     : OverflowPolicy::kStop;
  options.keep_tokens = keep_tokens;
  options.cache_host_bytes = cache_ram_mib << 20;
  options.cache_file = from_utf8(prompt_cache);
  if (!prefix_store.empty()) {
    options.cache_host_bytes = std::max(cache_ram_mib, kLeastStoreRam_mib) << 20;
    options.prefix_store = from_utf8(prefix_store);
    options.prefix_store_bytes = prefix_store_mib << 20;
  }
  options.prefix_cache = !no_prefix_cache;
  options.invariant = invariant;
  if (spec != "off") options.spare_logit_rows = std::max(options.spare_logit_rows, most_drafted);
}

host::Speculation ServingOptions::speculation() const {
  using enum host::Speculation::Guesses;
  return {.guesses = spec == "ngram"   ? kLookup
                     : spec == "auto"  ? kAuto
                     : spec == "draft" ? kModel
                     : spec == "mtp"   ? kBlock
                                       : kNone,
          .most_tokens = most_drafted};
}

/// What each state group has in the cache now, and what it cost and brought.
nlohmann::json groups_json(const KvCache& cache) {
  const PageKinds& kinds = cache.kinds();
  const std::vector<uint64_t> cached_bytes = cache.ledger().kind_cached_bytes;
  nlohmann::json json = nlohmann::json::array();
  for (uint32_t g = 0; g < kinds.size(); ++g) {
    const KindStats& stats = cache.stats().kinds[g];
    json.push_back({{"name", kinds[g].name},
                    {"kind", state_form_name(kinds[g].form)},
                    {"cached_bytes", cached_bytes[g]},
                    {"kept_states", stats.kept_states},
                    {"evicted_blocks", stats.evicted_blocks},
                    {"shortened", stats.shortened},
                    {"shortened_tokens", stats.shortened_tokens}});
  }
  return json;
}

nlohmann::json stats_json(const Engine& engine) {
  const CacheStats& cache = engine.scheduler().cache().stats();
  const CacheLedger ledger = engine.scheduler().cache().ledger();
  nlohmann::json misses = nlohmann::json::object();
  for (size_t i = 0; i < kMissReasonCount; ++i) {
    misses[std::string(miss_reason_name(static_cast<MissReason>(i)))] = cache.misses[i];
  }
  return {
      {"scheduler", telemetry_to_json(engine.scheduler().telemetry(), engine.kv_bytes_per_token())},
      {"cache",
       {{"queries", cache.queries},
        {"queried_tokens", cache.queried_tokens},
        {"cached_tokens", cache.cached_tokens},
        {"host_tokens", cache.host_tokens},
        {"file_tokens", cache.file_tokens},
        {"copied_tokens", cache.copied_tokens},
        {"evicted_blocks", cache.evicted_blocks},
        {"saved_blocks", cache.saved_blocks},
        {"free_blocks", engine.scheduler().cache().n_free_pages()},
        {"misses", misses},
        {"pool_bytes", ledger.device_bytes},
        {"used_bytes", ledger.device_used_bytes},
        {"cached_bytes", ledger.device_cached_bytes},
        {"groups", groups_json(engine.scheduler().cache())}}},
      {"profile", engine.scheduler().profile_json()},
      {"dispatched_rows", engine.dispatched_rows()}};
}

void print_stats(const std::string& stats, const Engine& engine) {
  if (stats.empty()) return;
  if (stats == "json") {
    print_message("{}\n", stats_json(engine).dump(2));
    return;
  }
  const Telemetry& t = engine.scheduler().telemetry();
  print_message(
      "{}, {} finished, {} cancelled, {} failed, {}\n"
      "{}, {} of them cached; {} generated, {} more computed ahead and discarded\n",
      counted(t.steps, "step"), counted(t.finished, "request"), t.cancelled, t.failed,
      counted(t.preemptions, "preemption"), counted(t.prompt_tokens, "prompt token"),
      t.cached_tokens, t.generated_tokens, t.discarded_tokens);
  if (t.drafted_tokens > 0) {
    print_message("{} guessed, {} of them accepted\n", counted(t.drafted_tokens, "token"),
                  t.accepted_tokens);
  }
  const auto row = [](const char* name, const Histogram& histogram, double scale) {
    print_message("{:<18} p50 {:>9.2f}  p90 {:>9.2f}  p99 {:>9.2f}\n", name,
                  histogram.percentile(0.5) * scale, histogram.percentile(0.9) * scale,
                  histogram.percentile(0.99) * scale);
  };
  row("TTFT ms", t.ttft_seconds, 1e3);
  row("TPOT ms", t.tpot_seconds, 1e3);
  row("ITL ms", t.itl_seconds, 1e3);
  row("queue ms", t.wait_seconds, 1e3);
  row("chunk tokens", t.chunk_tokens, 1);
}

}  // namespace pumice::tools
