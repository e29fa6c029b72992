// pumice bench --advise: which lever brings a model to a latency target.
#include "base/folders.hpp"
#include "bench/advise.hpp"

#include <nlohmann/json.hpp>
#include "tools/bench.hpp"
#include "tools/interrupt.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {
namespace {

/// How `pumice run` is called with what --advise was.
std::string run_command(const ModelOptions& model) {
  std::string command = "pumice run -m ";
  command += model.model.empty() ? "MODEL" : model.model;
  if (model.math != "auto") command += " --math " + model.math;
  if (model.kv_type() != KvTypes()) {
    command += fmt::format(" -ctk {} -ctv {}", model.kv_type_k, model.kv_type_v);
  }
  return command;
}

uint32_t first_or(const std::vector<uint32_t>& list, uint32_t otherwise) {
  return list.empty() || list[0] == 0 ? otherwise : list[0];
}

}  // namespace

Status bench_advise(const BenchOptions& options) {
  PUMICE_TRY_STATUS(require_md_or_json(options));
  PUMICE_TRY_STATUS(options.model.validate());
  if (options.levers.ttft_target_ms <= 0 && options.tpot_target_ms <= 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--advise needs a target: --ttft-target MS, --tpot-target MS or both");
  }
  const Logger logger = stderr_logger(options.model.verbose);
  PUMICE_TRY(const ModelSource source, options.model.open_source());
  PUMICE_TRY(const host::OpenedModel opened, open_model(options.model, source, logger));
  const bool is_cpu = opened.device->plan().device_class == vk::DeviceClass::kCpu;
  bench::AdviseOptions wanted{
      .ttft_target_s = options.levers.ttft_target_ms * 1e-3,
      .tpot_target_s = options.tpot_target_ms * 1e-3,
      .n_prompt = first_or(options.n_prompt, is_cpu ? 128 : 512),
      .n_gen = first_or(options.n_gen, is_cpu ? 8 : 32),
      .rounds = std::max<uint32_t>(options.repetitions.value_or(0), bench::kLeastPairs),
      .n_streams = options.n_streams,
      .engine = {.kv_type = options.model.kv_type(),
                 .math = options.model.math_kind(),
                 .token_budget = options.n_batch[0],
                 .chunk_tokens = options.n_ubatch[0]},
      .stop = InterruptGuard::interrupted};
  PUMICE_TRY_STATUS(
      context_for(options.model, opened.model->program, wanted.n_prompt, wanted.n_gen + 1));
  std::optional<bench::Evidence> evidence;
  PUMICE_TRY(const nlohmann::json run, checked_run(options, opened, source, logger, &evidence));
  if (evidence) {
    wanted.check = [&](const std::shared_ptr<vk::PipelineLibrary>& pipelines, KvTypes kv_type,
                       ops::Math math) -> Result<nlohmann::json> {
      host::OpenedModel of_lever = opened;
      of_lever.pipelines = pipelines;
      PUMICE_TRY(const bench::Evidence found,
                 check_logits(of_lever, source, kv_type, math, logger, &*evidence));
      PUMICE_TRY_STATUS(bench::verdict(found));
      return to_json(found);
    };
  }
  wanted.begins = [&](const std::string& what) { logger.info("{}", what); };
  const InterruptGuard interrupt;
  const bench::Advice advice = bench::advise(
      opened.pipelines,
      [&] { return host::open_pipelines(opened.device, cache_directory(), logger).first; },
      opened.model, wanted);
  const std::string command = run_command(options.model);
  print_report(
      options,
      [&] {
        nlohmann::json json = to_json(advice, command);
        json.update(run);
        return json;
      },
      [&] { return to_markdown(advice, command); });
  if (advice.ended) return *advice.ended;
  return {};
}

}  // namespace pumice::tools
