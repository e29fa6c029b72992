// pumice bench --frame-impact: a render loop beside generation.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "bench/frame_impact.hpp"
#include "tools/bench.hpp"
#include "tools/flags.hpp"
#include "tools/interrupt.hpp"
#include "tools/terminal.hpp"
#include "vk/device.hpp"
#include "vk/pipeline.hpp"
#include "vk/queue_priority.hpp"

namespace pumice::tools {
namespace {

constexpr uint32_t kContext = 1024;  // unless -c says otherwise

}  // namespace

void FrameFlags::add_to(CLI::App& command) {
  CLI::Option* const frames = command.add_flag(
      "--frame-impact", asked_for,
      "A render loop beside generation: what frames take longer, what slices took against what was "
      "asked, and tokens per second, for budgets of 1 to 10 ms a frame and for none");
  add_number(command, "--frame-ms", work_ms, 0.01, 1000,
             "With --frame-impact: milliseconds that a frame computes")
      ->needs(frames);
  add_number(command, "--frame-rate", rate, 1, 1000, "With --frame-impact: frames a second")
      ->needs(frames);
  add_number(command, "--frame-seconds", seconds, 0.01, 3600,
             "With --frame-impact: seconds for each budget")
      ->needs(frames);
  command
      .add_flag("--frame-own-queue", own_queue,
                "With --frame-impact: frames have a queue of their own, as another program's")
      ->needs(frames);
  command
      .add_flag("--frame-low-priority", low_priority,
                "With --frame-impact: the engine's queue has a low global priority, if the driver "
                "grants one")
      ->needs(frames);
}

Status bench_frames(const BenchOptions& options) {
  PUMICE_TRY_STATUS(require_md_or_json(options));
  PUMICE_TRY_STATUS(options.model.validate());
  const Logger logger = stderr_logger(options.model.verbose);
  PUMICE_TRY(const ModelSource source, options.model.open_source());
  ModelOptions model = options.model;
  model.device.low_priority = options.frames.low_priority;
  PUMICE_TRY(const host::OpenedModel opened, open_model(model, source, logger));
  const bool knows_priority = vk::has_low_priority(opened.device->plan());
  if (options.frames.low_priority && !knows_priority) {
    return make_error(
        ErrorCode::kInvalidArgument,
        "--frame-low-priority: the driver does not support it (VK_KHR_global_priority)");
  }
  PUMICE_TRY(const nlohmann::json run, checked_run(options, opened, source, logger));
  std::shared_ptr<vk::PipelineLibrary> pipelines = opened.pipelines;
  if (options.frames.own_queue) {
    PUMICE_TRY(std::shared_ptr<vk::Device> device, open_device(options.model.device, logger));
    pipelines = std::make_shared<vk::PipelineLibrary>(std::move(device), "", 0);
  }
  const uint32_t asked = options.model.context_tokens;
  const EngineOptions engine_options{
      .kv_type = options.model.kv_type(),
      .math = options.model.math_kind(),
      .context_tokens =
          asked != 0 ? asked : std::min(kContext, opened.model->program.context_length),
      .token_budget = options.n_batch[0],
      .chunk_tokens = options.n_ubatch[0],
      .prefix_cache = false,
      .greedy_only = true};
  const InterruptGuard interrupt;
  PUMICE_TRY(const bench::FrameReport report,
             bench::measure_frames(
                 *pipelines, [&] { return opened.make_engine(engine_options); },
                 {.frame_rate = options.frames.rate,
                  .frame_work_ms = options.frames.work_ms,
                  .seconds = options.frames.seconds,
                  .n_vocab = opened.model->program.n_vocab,
                  .own_queue = options.frames.own_queue,
                  .stop = InterruptGuard::interrupted},
                 [&](const std::string& budget) { logger.info("frames: {}", budget); }));
  print_report(
      options,
      [&] {
        nlohmann::json record = to_json(report);
        record["low_priority"] = options.frames.low_priority;
        record.update(run);
        return record;
      },
      [&] { return to_markdown(report); });
  if (report.ended) return *report.ended;
  return {};
}

}  // namespace pumice::tools
