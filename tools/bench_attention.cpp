// pumice bench --attention and --no-kv-cache: what flash attention and the KV cache save.
#include <nlohmann/json.hpp>

#include <algorithm>

#include "base/folders.hpp"
#include "bench/attention_bench.hpp"
#include "bench/build_info.hpp"
#include "bench/device_record.hpp"
#include "bench/kv_cache_bench.hpp"
#include "tools/bench.hpp"
#include "tools/interrupt.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {
namespace {

constexpr uint32_t kMostContext = 8192;  // unless -p asks for more
constexpr double kCpuSeconds = 10;

}  // namespace

Status bench_attention(const BenchOptions& options) {
  PUMICE_TRY_STATUS(require_md_or_json(options));
  const Logger logger = stderr_logger(options.model.verbose);
  PUMICE_TRY(const std::shared_ptr<vk::Device> device, open_device(options.model.device, logger));
  const auto [pipelines, verdict] = open_pipelines(device, cache_directory(), logger);
  const bool is_cpu = device->plan().device_class == vk::DeviceClass::kCpu;
  bench::AttentionReport report;
  {
    const InterruptGuard interrupt;
    ProgressBar bar("measuring");
    report = bench::bench_attention(*pipelines,
                                    {.repetitions = options.repetitions.value_or(is_cpu ? 3 : 5),
                                     .stop = InterruptGuard::interrupted},
                                    [&](size_t done, size_t total) {
                                      bar.update(done, total);
                                      return !InterruptGuard::interrupted();
                                    });
  }
  pipelines->save();
  print_report(
      options,
      [&] {
        nlohmann::json json = to_json(report);
        json["device"] = bench::device_to_json(*device);
        json["build_commit"] = bench::build_commit();
        json["build_dirty"] = bench::build_is_dirty();
        return json;
      },
      [&] { return to_markdown(report); });
  return bench::verdict(report);
}

Status bench_no_kv_cache(const BenchOptions& options) {
  PUMICE_TRY_STATUS(require_md_or_json(options));
  PUMICE_TRY_STATUS(options.model.validate());
  const Logger logger = stderr_logger(options.model.verbose);
  PUMICE_TRY(const ModelSource source, options.model.open_source());
  PUMICE_TRY(const Session session, open_session(options.model, source, logger));
  bench::KvCacheOptions wanted{.contexts = options.n_prompt, .stop = InterruptGuard::interrupted};
  std::erase(wanted.contexts, 0u);
  std::ranges::sort(wanted.contexts);
  const uint32_t longest =
      wanted.contexts.empty()
          ? std::min(kMostContext, session.model->program.context_length) - wanted.tokens - 1
          : wanted.contexts.back();
  PUMICE_TRY(wanted.most_tokens,
             context_for(options.model, session.model->program, longest, wanted.tokens + 1));
  if (session.device->plan().device_class == vk::DeviceClass::kCpu) wanted.seconds = kCpuSeconds;
  const EngineOptions engine_options{.kv_type = options.model.kv_type(),
                                     .math = options.model.math_kind(),
                                     .context_tokens = wanted.most_tokens,
                                     .token_budget = options.n_batch[0],
                                     .chunk_tokens = options.n_ubatch[0],
                                     .prefix_cache = false,
                                     .greedy_only = true};
  PUMICE_TRY(const nlohmann::json run, checked_run(options, session, source, logger));
  PUMICE_TRY(const std::unique_ptr<Engine> engine, make_engine(session, engine_options));
  const InterruptGuard interrupt;
  const bench::KvCacheReport report =
      bench::bench_kv_cache(*engine, session.model->program.n_vocab, wanted);
  print_report(
      options,
      [&] {
        nlohmann::json json = to_json(report);
        json.update(run);
        json["variants"] = engine->variants();
        return json;
      },
      [&] { return to_markdown(report); });
  if (report.ended) return *report.ended;
  return {};
}

}  // namespace pumice::tools
