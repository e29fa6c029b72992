#include "host/opened_model.hpp"

#include <chrono>
#include <string>
#include <tuple>

#include "base/path.hpp"
#include "engine/memory_plan.hpp"
#include "host/cost_file.hpp"
#include "host/sizing.hpp"
#include "models/program.hpp"
#include "shaders/passport.hpp"
#include "shaders/spirv.hpp"
#include "shaders/tuning_overlay.hpp"

namespace pumice::host {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::filesystem::path cost_file_of(const OpenedModel& opened, const EngineOptions& engine_options) {
  if (!opened.options.remember_costs) return {};
  return cost_file(opened.options.cache_directory, opened.device->snapshot(),
                   opened.model->fingerprint, engine_options);
}

LearnedCosts costs_of(const Engine& engine) {
  return {.steps = engine.scheduler().cost(), .pace = engine.learned_pace()};
}

}  // namespace

TestedPipelines open_pipelines(const std::shared_ptr<vk::Device>& device,
                               const std::filesystem::path& cache_directory, const Logger& logger,
                               std::vector<vk::TuningRow> preferred) {
  auto library = std::make_shared<vk::PipelineLibrary>(device, cache_directory, spirv_hash());
  for (vk::TuningRow& row : load_tuning_overlay(cache_directory, device->snapshot(), logger)) {
    preferred.push_back(std::move(row));
  }
  library->prefer(std::move(preferred));
  auto verdict = load_passport(cache_directory, device->snapshot(), logger);
  if (verdict) {
    library->reject(verdict->rejected());
    library->accept(verdict->passed());
  } else {
    logger.info(
        "the kernels have not been tested on this device and driver; pumice info --self-test does "
        "that");
  }
  return {std::move(library), std::move(verdict)};
}

Result<OpenedModel> OpenedModel::open(const OpenOptions& options, const ModelSource& source,
                                      const ModelWeights::Progress& loading) {
  PUMICE_TRY(std::shared_ptr<vk::Device> device, open_device(options.device, options.logger));
  return open_on(std::move(device), options, source, loading);
}

Result<OpenedModel> OpenedModel::open_on(std::shared_ptr<vk::Device> device,
                                         const OpenOptions& options, const ModelSource& source,
                                         const ModelWeights::Progress& loading) {
  OpenedModel opened{.options = options, .device = std::move(device)};
  std::tie(opened.pipelines, opened.verdict) =
      open_pipelines(opened.device, options.cache_directory, options.logger);
  PUMICE_TRY_STATUS(opened.load(source, loading));
  return opened;
}

Status OpenedModel::load(const ModelSource& source, const ModelWeights::Progress& loading) {
  const Logger& logger = options.logger;
  std::shared_ptr<const ModelPlan> plan = options.plan;
  if (plan == nullptr) {
    PUMICE_TRY(plan, ModelPlan::of_source(source));
  }
  uint32_t weight_pieces = UINT32_MAX;
  if (!plan->program().pooling) {
    const EngineOptions least{.context_tokens = kKvBlockTokens};
    const EngineOptions engine = options.engine.value_or(least);
    PUMICE_TRY(const MemoryPlanner planner,
               MemoryPlanner::of_plan(plan, device_memory(*device), engine.fusion));
    if (options.engine && !options.engine_may_differ) PUMICE_TRY_STATUS(planner.check(engine));
    PUMICE_TRY(MemoryPlan memory, planner.plan(engine));
    if (!planner.fits(memory)) {
      PUMICE_TRY(memory, planner.plan(least));
    }
    weight_pieces = memory.weight_pieces;
    if (memory.beside_bytes > 0) {
      logger.warning(
          "{} of the weights do not fit on {} and stay in the host's memory: each token reads {} "
          "of them there",
          memory_text(memory.beside_bytes), device->snapshot().name,
          memory_text(static_cast<uint64_t>(memory.beside_read_bytes)));
    }
  }
  const auto start = Clock::now();
  PUMICE_TRY(model, Model::load(device, source, plan, loading, weight_pieces));
  const double seconds = seconds_since(start);
  const double gigabytes = static_cast<double>(model->weights->now()->resident_bytes()) * 1e-9;
  logger.info("loaded {} layers, {} wide, {} vocabulary; {:.2f} GB in {:.2f} s, {:.2f} GB/s",
              model->n_layers(), embedding_width(model->program), model->program.n_vocab, gigabytes,
              seconds, gigabytes / seconds);
  return {};
}

Result<std::unique_ptr<Engine>> OpenedModel::make_engine(
    EngineOptions engine_options, const vk::PipelineLibrary::Progress& compiling) const {
  const Logger& logger = options.logger;
  engine_options.logger = logger;
  const std::filesystem::path costs = cost_file_of(*this, engine_options);
  if (!engine_options.cost.calibrated()) {
    const LearnedCosts learned = read_costs(costs, logger);
    engine_options.cost = learned.steps;
    if (!engine_options.pace) engine_options.pace = learned.pace;
  }
  const auto start = Clock::now();
  PUMICE_TRY(std::unique_ptr<Engine> engine,
             Engine::create(pipelines, model, engine_options, compiling));
  if (verdict) {
    for (const std::string& line : replacements(*pipelines, *verdict)) logger.warning("{}", line);
  }
  if (engine_options.prewarm) {
    logger.info("{} kernels ready in {:.2f} s", pipelines->compiled_count(), seconds_since(start));
  } else {
    logger.info("engine created in {:.2f} s; its kernels are compiled later", seconds_since(start));
  }
  for (const auto& [purpose, entry] : device->ledger().entries()) {
    logger.debug("{:>16}: {:.1f} MiB", purpose,
                 static_cast<double>(entry.current_bytes) / (1 << 20));
  }
  if (engine_options.tpot_target_s > 0 && !engine_options.cost.calibrated()) {
    PUMICE_TRY_STATUS(engine->calibrate());
    PUMICE_TRY_STATUS(engine->scheduler().check_target());
    write_costs(costs, costs_of(*engine), logger);
  }
  return engine;
}

Result<EngineOptions> OpenedModel::sized_for_prompts(EngineOptions engine_options, bool several,
                                                     uint64_t most_bytes) const {
  PUMICE_TRY(MemoryPlanner planner, MemoryPlanner::of_loaded(*model, *device));
  if (engine_options.context_tokens == 0) {
    PUMICE_TRY(const uint32_t most, context_of_machine(planner, engine_options, options.logger));
    planner.use_at_most(most_bytes);
    const uint32_t least = std::min(most, MemoryPlanner::kRoomTokens);
    engine_options.context_tokens = std::max(least, planner.largest_context(engine_options, most));
  }
  planner.use_at_most(most_bytes);
  if (several) engine_options.kv_blocks = kv_blocks_for_reuse(planner, engine_options);
  return engine_options;
}

Result<std::unique_ptr<Embedder>> OpenedModel::make_embedder(
    const EmbedderOptions& embedder_options, const vk::PipelineLibrary::Progress& compiling) const {
  PUMICE_TRY(std::unique_ptr<Embedder> embedder,
             Embedder::create(pipelines, model, embedder_options, compiling));
  if (verdict) {
    for (const std::string& line : replacements(*pipelines, *verdict)) {
      options.logger.warning("{}", line);
    }
  }
  return embedder;
}

void OpenedModel::keep_for_next_run(Engine& engine) const {
  if (device == nullptr) return;
  write_costs(cost_file_of(*this, engine.options()), costs_of(engine), options.logger);
  if (const Status stored = engine.finish_storing(); !stored.ok()) {
    options.logger.warning("prefix store {}: not all is stored: {}",
                           to_utf8(engine.options().prefix_store), stored.error().message);
  }
  if (engine.options().cache_file.empty()) return;
  const Status saved = engine.save_prompt_cache();
  if (!saved.ok()) {
    options.logger.warning("prompt cache {} not saved: {}", to_utf8(engine.options().cache_file),
                           saved.error().message);
  }
}

}  // namespace pumice::host
