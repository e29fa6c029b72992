#include "tools/session.hpp"

#include <algorithm>
#include <cstdlib>

#include "shaders/passport.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {

void ModelOptions::add_to(CLI::App& app, const std::string& default_math,
                          const std::string& default_kv) {
  math = default_math;
  kv_type_k = kv_type_v = default_kv;
  app.add_option("-m,--model", model, "GGUF model file")->envname("PUMICE_MODEL");
  app.add_option("-c,--ctx-size", context_tokens,
                 "Context in tokens (default: as much as this run needs)")
      ->envname("PUMICE_CTX_SIZE")
      ->check(CLI::Range(1u, 1u << 24));
  app.add_option(
         "--math", math,
         "Arithmetic of matrix products: f32, f16 (fp16 inputs, fp32 sums, on matrix cores), auto "
         "(f16 on GPUs with matrix cores, else f32) or i8 (8-bit activations, coarser)")
      ->envname("PUMICE_MATH")
      ->capture_default_str()
      ->check(
          CLI::IsMember(std::vector<std::string>(ops::kMathNames.begin(), ops::kMathNames.end())));
  app.add_option("--cache-type-k,--ctk", kv_type_k, "-ctk: type of cached keys")
      ->envname("PUMICE_CACHE_TYPE_K")
      ->capture_default_str()
      ->check(CLI::IsMember({"f16", "f32"}));
  app.add_option("--cache-type-v,--ctv", kv_type_v, "-ctv: type of cached values")
      ->envname("PUMICE_CACHE_TYPE_V")
      ->capture_default_str()
      ->check(CLI::IsMember({"f16", "f32"}));
  device.add_to(app);
  app.add_flag("-v,--verbose", verbose, "Log every stage to stderr")->envname("PUMICE_VERBOSE");
  app.add_flag("--profile", profile, "Time every kernel and print a table to stderr (slower)");
}

void ModelOptions::add_batch_sizes(CLI::App& app) {
  app.add_option("-b,--batch-size", token_budget, "Most tokens computed in one step")
      ->envname("PUMICE_BATCH_SIZE")
      ->capture_default_str()
      ->check(CLI::Range(kKvBlockTokens, 1u << 16));
  app.add_option("--ubatch-size,--ub", chunk_tokens, "-ub: most prompt tokens computed in one step")
      ->envname("PUMICE_UBATCH_SIZE")
      ->capture_default_str()
      ->check(CLI::Range(1u, 1u << 16));
}

CLI::Option* add_invariant(CLI::App& app, bool& invariant) {
  return app
      .add_flag("--invariant", invariant,
                "Results identical to the bit however the work is cut, batched and cached (slower)")
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
  if (synthetic.empty()) return ModelSource::open(model);
  PUMICE_TRY(const SyntheticModel made, SyntheticModel::parse(synthetic));
  return ModelSource::synthetic(made);
}

Status ModelOptions::validate() const {
  const char* const default_model = std::getenv("PUMICE_MODEL");
  if (!synthetic.empty() && !model.empty() && model != (default_model ? default_model : "")) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--synthetic and -m: there can be one model at a time; leave one out");
  }
  if (model.empty() && synthetic.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "no model: give one with -m FILE");
  }
  if (kv_type_k != kv_type_v) {
    return make_error(ErrorCode::kInvalidArgument,
                      "-ctk {} and -ctv {}: keys and values must have one type", kv_type_k,
                      kv_type_v);
  }
  return {};
}

ops::Math ModelOptions::math_kind() const { return ops::parse_math(math).value(); }

KvType ModelOptions::kv_type() const { return kv_type_k == "f32" ? KvType::kF32 : KvType::kF16; }

Result<Session> Session::open(const ModelOptions& options, const ModelSource& source,
                              const Logger& logger) {
  Session session;
  PUMICE_TRY(session.device, open_device(options.device, logger));
  std::tie(session.pipelines, session.verdict) = open_pipelines(session.device, logger);
  ProgressBar bar("loading the model");
  const auto start = std::chrono::steady_clock::now();
  PUMICE_TRY(session.model, Model::load(session.device, source, [&](uint64_t done, uint64_t total) {
               bar.update(done, total);
             }));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const Program& program = session.model->program;
  const uint64_t bytes = session.model->weights.resident_bytes();
  logger.info("loaded {}: {} layers, {} wide, {} vocabulary; {:.2f} GB in {:.2f} s, {:.2f} GB/s",
              options.model_name(), session.model->n_layers(), embedding_width(program),
              program.n_vocab, static_cast<double>(bytes) * 1e-9, seconds.count(),
              static_cast<double>(bytes) * 1e-9 / seconds.count());
  return session;
}

Result<std::unique_ptr<Engine>> Session::make_engine(const EngineOptions& options,
                                                     const Logger& logger) const {
  ProgressBar bar("compiling kernels");
  const auto start = std::chrono::steady_clock::now();
  PUMICE_TRY(std::unique_ptr<Engine> engine,
             Engine::create(pipelines, model, options,
                            [&](size_t done, size_t total) { bar.update(done, total); }));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  if (verdict) {
    for (const std::string& line : replacements(*pipelines, *verdict)) logger.warning("{}", line);
  }
  logger.info("{} kernels ready in {:.2f} s", pipelines->compiled_count(), seconds.count());
  for (const auto& [purpose, entry] : device->ledger().entries()) {
    logger.debug("{:>16}: {:.1f} MiB", purpose,
                 static_cast<double>(entry.current_bytes) / (1 << 20));
  }
  return engine;
}

Result<uint32_t> context_for(const ModelOptions& options, const Model& model, size_t prompt_tokens,
                             uint32_t new_tokens, OverflowPolicy overflow) {
  if (options.context_tokens != 0) return options.context_tokens;
  const uint64_t needed = uint64_t{prompt_tokens} + new_tokens;
  if (needed > model.program.context_length && overflow != OverflowPolicy::kStop) {
    return model.program.context_length;
  }
  if (needed > model.program.context_length) {
    return make_error(ErrorCode::kDoesNotFit,
                      "{} prompt + {} new tokens exceed the model's context of {} by {} tokens "
                      "(-c {} goes beyond it all the same)",
                      prompt_tokens, new_tokens, model.program.context_length,
                      needed - model.program.context_length, needed);
  }
  return static_cast<uint32_t>(needed);
}

namespace {

/// The pages of a model's keys and values, and how many of them the device's memory holds.
struct KvRoom {
  std::vector<CacheGroup> groups;
  uint64_t n_pages = 0;
  uint32_t step_tokens = 0;

  uint64_t pages_of(uint64_t n_tokens) const {
    return pages_of_context(groups, n_tokens, step_tokens);
  }
  /// The longest sequence that fits: pages rise with tokens.
  uint64_t tokens() const {
    uint64_t fits = 0;
    uint64_t too_many = n_pages + 1;
    while (too_many - fits > 1) {
      const uint64_t middle = fits + (too_many - fits) / 2;
      (pages_of(middle * kKvBlockTokens) <= n_pages ? fits : too_many) = middle;
    }
    return fits * kKvBlockTokens;
  }
};

/// Beside everything else that an engine of this context allocates.
KvRoom room_for_kv(const Session& session, const EngineOptions& engine, uint32_t context_tokens) {
  const Program& program = session.model->program;
  const uint32_t rows = std::min(engine.token_budget, context_tokens);
  const uint64_t others = session.device->ledger().total_bytes() +
                          Decoder::buffer_bytes(program, {.rows = rows,
                                                          .logit_rows = engine.n_sequences,
                                                          .context_tokens = context_tokens}) +
                          (uint64_t{64} << 20);  // step arguments, sampling, block tables
  const uint64_t budget = session.device->plan().device_budget_bytes;
  const StateLayout layout = state_layout(program, engine.kv_type);
  return {.groups = cache_groups(program, layout),
          .n_pages = budget > others ? (budget - others) / layout.page_bytes : 0,
          .step_tokens = engine.token_budget};
}

}  // namespace

Result<uint32_t> context_of_machine(const ModelOptions& options, const Session& session,
                                    const EngineOptions& engine, const Logger& logger) {
  if (options.context_tokens != 0) return options.context_tokens;
  const uint32_t wanted = session.model->program.context_length;
  const uint64_t fit = room_for_kv(session, engine, wanted).tokens();
  if (fit >= wanted) return wanted;
  if (fit < kKvBlockTokens) {
    return make_error(ErrorCode::kDoesNotFit,
                      "no memory is left for a context beside the model's weights");
  }
  logger.warning("a context of {} tokens, of the model's {}: more does not fit into this device",
                 fit, wanted);
  return static_cast<uint32_t>(fit);
}

uint32_t kv_blocks_for_reuse(const Session& session, const EngineOptions& engine) {
  const KvRoom room = room_for_kv(session, engine, engine.context_tokens);
  const uint64_t n_groups = room.groups.size();
  const uint64_t needed = (room.pages_of(engine.context_tokens) + n_groups - 1) / n_groups;
  const uint64_t wanted =
      (uint64_t{4} * engine.context_tokens + kKvBlockTokens - 1) / kKvBlockTokens;
  return static_cast<uint32_t>(std::max(needed, std::min(room.n_pages / n_groups, wanted)));
}

}  // namespace pumice::tools
