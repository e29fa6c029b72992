#include "tools/model_options.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/folders.hpp"
#include "base/path.hpp"
#include "base/process.hpp"
#include "host/sizing.hpp"
#include "tools/flags.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {

void ModelOptions::add_to(CLI::App& app, const std::string& default_math,
                          const std::string& default_kv) {
  app.add_option("-m,--model", model, "GGUF model file")->envname("PUMICE_MODEL");
  add_rest_to(app, default_math, default_kv);
}

void ModelOptions::add_rest_to(CLI::App& app, const std::string& default_math,
                               const std::string& default_kv) {
  math = default_math;
  kv_type_k = kv_type_v = default_kv;
  hub.add_to(app);
  app.add_option("-c,--ctx-size", context_tokens,
                 "Context in tokens (default, and 0: as much as this run needs)")
      ->envname("PUMICE_CTX_SIZE")
      ->check(CLI::Range(0u, 1u << 24));
  add_choice(
      app, "--math", math, {ops::kMathNames.begin(), ops::kMathNames.end()},
      "Arithmetic of matrix products: f32, f16 (fp16 inputs, fp32 sums, on matrix cores), auto "
      "(f16 on GPUs with matrix cores, else f32) or i8 (8-bit activations, coarser)")
      ->envname("PUMICE_MATH");
  const std::vector<std::string> kv_types(kKvTypeNames.begin(), kKvTypeNames.end());
  add_choice(app, "--cache-type-k,--ctk", kv_type_k, kv_types,
             "Type of cached keys; q8_0 takes half of f16's memory, q4_0 a quarter")
      ->envname("PUMICE_CACHE_TYPE_K");
  add_choice(app, "--cache-type-v,--ctv", kv_type_v, kv_types, "Type of cached values")
      ->envname("PUMICE_CACHE_TYPE_V");
  device.add_to(app);
  app.add_flag("-v,--verbose", verbose, "Log every stage to stderr")->envname("PUMICE_VERBOSE");
  app.add_flag("--profile", profile, "Time every kernel and print a table to stderr (slower)");
}

void ModelOptions::add_batch_sizes(CLI::App& app) {
  add_number(app, "-b,--batch-size", token_budget, kKvBlockTokens, 1u << 16,
             "Maximum tokens computed in one step")
      ->envname("PUMICE_BATCH_SIZE");
  add_number(app, "--ubatch-size,--ub", chunk_tokens, 1u, 1u << 16,
             "Maximum prompt tokens computed in one step")
      ->envname("PUMICE_UBATCH_SIZE");
}

CLI::Option* add_invariant(CLI::App& app, bool& invariant) {
  return app
      .add_flag("--invariant", invariant,
                "Bit-identical results however work is cut, batched and cached (slower)")
      ->envname("PUMICE_INVARIANT");
}

void ModelOptions::add_synthetic_to(CLI::App& app) {
  app.add_option(
      "--synthetic", synthetic,
      "Instead of -m: random weights in the shape of a real model, made in device memory: "
      "PRESET[:TYPE], as in llama-8b:q4_k (pumice synth --list)");
}

std::string ModelOptions::model_name() const {
  return synthetic.empty() ? model : "synthetic:" + synthetic;
}

Result<ModelSource> ModelOptions::open_source() const {
  if (synthetic.empty()) return ModelSource::open(from_utf8(model));
  PUMICE_TRY(const SyntheticModel made, SyntheticModel::parse(synthetic));
  return ModelSource::synthetic(made);
}

Status ModelOptions::validate() const {
  const std::string default_model = environment_variable("PUMICE_MODEL").value_or("");
  if (!synthetic.empty() && !model.empty() && model != default_model) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--synthetic and -m: there can be one model at a time; leave one out");
  }
  if (!synthetic.empty() && !hub.name.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--synthetic and -hf: there can be one model at a time; leave one out");
  }
  if (model.empty() && synthetic.empty() && hub.name.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "no model: give one with -m FILE or -hf user/repo");
  }
  return {};
}

Status ModelOptions::resolve() {
  if (device.list || hub.name.empty()) return {};
  PUMICE_TRY_STATUS(validate());
  return hub.resolve(model);
}

ops::Math ModelOptions::math_kind() const { return ops::parse_math(math).value(); }

KvTypes ModelOptions::kv_type() const {
  return {parse_kv_type(kv_type_k).value(), parse_kv_type(kv_type_v).value()};
}

namespace {

/// A device that does not come back ends the command.
constexpr host::RetryPolicy kRetry{.most_tries = 4};

Result<host::OpenOptions> open_options(const ModelOptions& options, const Logger& logger) {
  PUMICE_TRY(host::DeviceRequest device, options.device.request(logger));
  return host::OpenOptions{.device = std::move(device),
                           .cache_directory = cache_directory(),
                           .remember_costs = options.remember_costs,
                           .logger = logger};
}

Result<std::shared_ptr<host::ModelOwner>> open_lasting(
    const ModelOptions& options, const ModelSource& source, const host::ModelTexts& texts,
    const Logger& logger, const EngineOptions& engine, const HostRequest& request) {
  std::shared_ptr<host::DeviceOwner> device = request.share.device;
  if (device == nullptr) {
    PUMICE_TRY(device, open_device_owner(options, logger));
  }
  logger.info("opening {}", options.model_name());
  const std::shared_ptr<const ModelPlan>& plan = request.plan;
  // Beside another model the device has room or has not: weights read from host memory would be slow
  // while memory that the other one could leave is there.
  if (!request.share.alone && !plan->program().pooling) {
    PUMICE_TRY(const host::OpenedModel opened, device->opened());
    DeviceMemory memory = device_memory(*opened.device);
    memory.beside.reset();
    PUMICE_TRY(const MemoryPlanner planner, MemoryPlanner::of_plan(plan, std::move(memory)));
    PUMICE_TRY_STATUS(planner.check(engine));
  }
  ProgressBar bar("loading the model");
  return host::ModelOwner::load(
      std::move(device),
      {.path = options.model, .engine = engine, .engine_may_differ = false, .plan = plan}, source,
      texts, [&](uint64_t done, uint64_t total) { bar.update(done, total); }, plan);
}

}  // namespace

Result<std::shared_ptr<host::DeviceOwner>> open_device_owner(const ModelOptions& options,
                                                             const Logger& logger) {
  PUMICE_TRY(host::OpenOptions open, open_options(options, logger));
  return host::DeviceOwner::open(std::move(open));
}

Result<host::OpenedModel> open_model(const ModelOptions& options, const ModelSource& source,
                                     const Logger& logger, std::optional<EngineOptions> engine,
                                     std::shared_ptr<const ModelPlan> plan) {
  PUMICE_TRY(host::OpenOptions open, open_options(options, logger));
  logger.info("opening {}", options.model_name());
  open.engine = std::move(engine);
  open.plan = std::move(plan);
  ProgressBar bar("loading the model");
  return host::OpenedModel::open(open, source,
                                 [&](uint64_t done, uint64_t total) { bar.update(done, total); });
}

Result<std::unique_ptr<Engine>> make_engine(const host::OpenedModel& opened,
                                            const EngineOptions& options) {
  ProgressBar bar("compiling kernels");
  return opened.make_engine(options, [&](size_t done, size_t total) { bar.update(done, total); });
}

Result<std::unique_ptr<host::Host>> open_host(const ModelOptions& options,
                                              const ModelSource& source, host::ModelTexts texts,
                                              const Logger& logger, HostRequest request) {
  if (request.plan == nullptr) {
    PUMICE_TRY(request.plan, ModelPlan::of_source(source, request.predicts));
  }
  EngineOptions engine_options = request.engine;
  const bool finds_context = request.prompts != Prompts::kKnown && options.context_tokens == 0;
  if (request.prompts != Prompts::kKnown) {
    // Without as much nothing is loaded.
    const uint32_t least = request.share.alone ? kKvBlockTokens
                                               : std::min(MemoryPlanner::kRoomTokens,
                                                          request.plan->program().context_length);
    engine_options.context_tokens = finds_context ? least : options.context_tokens;
  }
  PUMICE_TRY(std::shared_ptr<host::ModelOwner> model,
             open_lasting(options, source, std::move(texts), logger, engine_options, request));
  const host::OpenedModel opened = model->opened();
  std::shared_ptr<host::DraftModel> draft_model;
  if (!request.draft_model.empty()) {
    PUMICE_TRY(draft_model,
               host::DraftModel::load(opened, model->texts().tokenizer->vocabulary(),
                                      from_utf8(request.draft_model), options.context_tokens));
  }
  std::shared_ptr<PredictionDrafter> prediction;
  if (request.predicts) {
    PUMICE_TRY(prediction, host::load_prediction(opened, source, options.context_tokens));
  }
  if (finds_context) engine_options.context_tokens = 0;
  if (request.prompts != Prompts::kKnown) {
    PUMICE_TRY(engine_options,
               opened.sized_for_prompts(engine_options, request.prompts == Prompts::kSeveral,
                                        request.share.most_bytes));
  }
  PUMICE_TRY(std::unique_ptr<Engine> engine, make_engine(opened, engine_options));
  warn_beyond_training(engine_options.context_tokens, opened.model->program.context_length, logger);
  return std::make_unique<host::Host>(
      std::move(model), std::move(engine),
      host::HostOptions{.retry = kRetry,
                        .forgets_messages = request.forgets_messages,
                        .draft_model = std::move(draft_model),
                        .prediction = std::move(prediction)});
}

Result<std::unique_ptr<host::LastingEmbedder>> open_embedder(
    const ModelOptions& options, const GgufFile& file, host::ModelTexts texts, const Logger& logger,
    std::shared_ptr<const ModelPlan> plan, EmbedderOptions embedder, uint32_t most_tokens,
    const DeviceShare& share) {
  embedder.text_tokens = longest_text(plan->program(), options.context_tokens);
  if (options.context_tokens == 0) {
    embedder.text_tokens = std::min(embedder.text_tokens, most_tokens);
  }
  PUMICE_TRY(
      std::shared_ptr<host::ModelOwner> model,
      open_lasting(options, file, texts, logger, {}, {.share = share, .plan = std::move(plan)}));
  ProgressBar bar("compiling kernels");
  return host::LastingEmbedder::create(std::move(model), embedder,
                                       [&](size_t done, size_t total) { bar.update(done, total); });
}

std::string beyond_training(uint32_t context_tokens, uint32_t trained_tokens) {
  if (context_tokens <= trained_tokens) return {};
  return fmt::format(
      "a context of {} tokens is more than the {} that the model was trained for; text beyond "
      "those may turn to noise",
      context_tokens, trained_tokens);
}

void warn_beyond_training(uint32_t context_tokens, uint32_t trained_tokens, const Logger& logger) {
  const std::string beyond = beyond_training(context_tokens, trained_tokens);
  if (!beyond.empty()) logger.warning("{}", beyond);
}

Result<uint32_t> context_for(const ModelOptions& options, const Program& program,
                             size_t prompt_tokens, uint32_t new_tokens, OverflowPolicy overflow) {
  if (options.context_tokens != 0) return options.context_tokens;
  const Result<uint32_t> context = host::context_for(program, prompt_tokens, new_tokens, overflow);
  if (context.ok()) return *context;
  return make_error(context.error().code, "{} (-c {} goes beyond it)", context.error().message,
                    uint64_t{prompt_tokens} + new_tokens);
}

}  // namespace pumice::tools
