// A model opened on a device, ready to make engines: what every program that embeds the runtime
// does first.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "base/result.hpp"
#include "engine/embedder.hpp"
#include "engine/engine.hpp"
#include "host/open_device.hpp"
#include "models/model.hpp"
#include "models/model_source.hpp"
#include "shaders/self_test.hpp"
#include "vk/device.hpp"
#include "vk/pipeline.hpp"

namespace pumice::host {

struct OpenOptions {
  DeviceRequest device = {};
  /// Where the driver's pipelines, the device's passport and the costs of steps are kept from run
  /// to run; empty: nothing is remembered, or read.
  std::filesystem::path cache_directory = {};
  /// Whether engines begin with what earlier runs learned of the costs of steps, and what they
  /// learn is kept. Not for benchmarks: a run would depend on those before it.
  bool remember_costs = true;
  /// What make_engine will be asked for, if it is known: what does not fit is then refused before
  /// anything is loaded.
  std::optional<EngineOptions> engine = {};
  /// `engine` is but likely: weights are placed for it, and loaded also where it does not fit.
  bool engine_may_differ = false;
  /// The source's, if it has been made; of a program that embeds (models/embedding.hpp), the model
  /// is loaded for `make_embedder` rather than for engines. None: ModelPlan::of_source.
  std::shared_ptr<const ModelPlan> plan = {};
  Logger logger = {};
};

/// The pipelines of a device, kept in `cache_directory` and without what its passport there
/// rejects, and that verdict: none if no self-test has been run here. Ops choose by the rows of
/// `preferred`, then by those of the device's tuning overlay, then by those of the build.
using TestedPipelines =
    std::pair<std::shared_ptr<vk::PipelineLibrary>, std::optional<SelfTestVerdict>>;
TestedPipelines open_pipelines(const std::shared_ptr<vk::Device>& device,
                               const std::filesystem::path& cache_directory, const Logger& logger,
                               std::vector<vk::TuningRow> preferred = {});

/// A model on a device, with its pipelines. Copies share all of it, and so do engines, which keep
/// alive what they need. Threads: as engines (engine.hpp); the members are not to change meanwhile.
struct OpenedModel {
  OpenOptions options;
  std::shared_ptr<vk::Device> device;
  std::shared_ptr<vk::PipelineLibrary> pipelines;
  std::optional<SelfTestVerdict> verdict;  ///< of the device's passport
  std::shared_ptr<const Model> model;

  /// Opens the device and loads the model. Errors: those of open_device, of Model::load and of
  /// MemoryPlanner::check.
  static Result<OpenedModel> open(const OpenOptions& options, const ModelSource& source,
                                  const ModelWeights::Progress& loading = {});

  /// The same on a device that is open. Errors: those of Model::load and of MemoryPlanner::check.
  static Result<OpenedModel> open_on(std::shared_ptr<vk::Device> device, const OpenOptions& options,
                                     const ModelSource& source,
                                     const ModelWeights::Progress& loading = {});

  /// The model, where there is a device and its pipelines so far. Weights that do not fit beside the
  /// engine of the options lie beside the device, with a warning (MemoryPlanner). Errors, with
  /// nothing loaded: as of `open_on`.
  Status load(const ModelSource& source, const ModelWeights::Progress& loading = {});

  /// An engine with every pipeline compiled, which logs where the options say. Its cost model
  /// is that of `engine_options` or, if that knows nothing, what is remembered, and so is its pace;
  /// if nothing is and there is a target for the time between tokens, it is calibrated first. Warns
  /// of kernels that replace ones that failed the device's self-test. Errors: Engine::create's; kSelfTestFailed
  /// when an op is left without any kernel; kInvalidArgument for a target that this device cannot
  /// meet with one row.
  Result<std::unique_ptr<Engine>> make_engine(
      EngineOptions engine_options, const vk::PipelineLibrary::Progress& compiling = {}) const;

  /// EngineOptions for prompts that are not known yet, or for texts without an end: without a
  /// window (0) context_of_machine's, and if there may be `several`, kv_blocks_for_reuse's pool.
  /// With all that the model has it takes `most_bytes` of the device, or, where that is more, what a
  /// context of MemoryPlanner::kRoomTokens takes. Errors: context_of_machine's.
  Result<EngineOptions> sized_for_prompts(EngineOptions engine_options, bool several,
                                          uint64_t most_bytes = UINT64_MAX) const;

  /// An embedder with every pipeline compiled; of a model that was loaded for it. Warns as
  /// make_engine does. Errors: Embedder::create's.
  Result<std::unique_ptr<Embedder>> make_embedder(
      const EmbedderOptions& embedder_options,
      const vk::PipelineLibrary::Progress& compiling = {}) const;

  /// At the end of a run: keep what the engine learned of costs, and its prompt cache file if it
  /// has one. What fails is logged. Nothing without a device.
  void keep_for_next_run(Engine& engine) const;
};

}  // namespace pumice::host
