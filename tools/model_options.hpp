// The flags of model and engine that `run`, `logits` and `bench` share, and what is opened from
// them.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>

#include "engine/engine.hpp"
#include "format/gguf.hpp"
#include "host/host.hpp"
#include "host/lasting_embedder.hpp"
#include "host/model_owner.hpp"
#include "host/opened_model.hpp"
#include "models/model_source.hpp"
#include "tools/device_options.hpp"
#include "tools/hub_options.hpp"

namespace pumice::tools {

struct ModelOptions {
  std::string model;
  HubModelFlags hub;
  std::string
      synthetic;  ///< "preset:type" instead of a file; only where add_synthetic_to is called
  DeviceOptions device;
  uint32_t context_tokens = 0;
  uint32_t token_budget = 512;
  uint32_t chunk_tokens = 512;
  std::string math = "auto";
  std::string kv_type_k;
  std::string kv_type_v;
  bool verbose = false;
  bool profile = false;
  bool remember_costs = false;  ///< no flag: OpenOptions::remember_costs of the subcommand

  /// `default_math`, `default_kv`: what the subcommand uses unless told otherwise.
  void add_to(CLI::App& app, const std::string& default_math, const std::string& default_kv);
  /// All but --model, for a command that takes several.
  void add_rest_to(CLI::App& app, const std::string& default_math, const std::string& default_kv);
  /// -b and -ub, which `bench` has as lists.
  void add_batch_sizes(CLI::App& app);
  void add_synthetic_to(CLI::App& app);
  Status validate() const;
  /// validate, and with -hf pulls the model, whose file `model` then is. What else could be wrong
  /// with the flags is better said before. Nothing to be done with --list-devices. Errors: those of
  /// HubModelFlags::resolve.
  Status resolve();
  /// The file, or "synthetic:preset:type".
  std::string model_name() const;
  /// Opens the file, or describes the synthetic model.
  Result<ModelSource> open_source() const;
  KvTypes kv_type() const;
  ops::Math math_kind() const;
  /// What they and the context say of an engine.
  EngineOptions engine_options() const {
    return {.kv_type = kv_type(), .math = math_kind(), .context_tokens = context_tokens};
  }
};

/// --invariant, the same wherever it is offered.
CLI::Option* add_invariant(CLI::App& app, bool& invariant);

/// OpenedModel::open for what the flags say, with a progress bar. `engine` and `plan` are those of
/// OpenOptions.
Result<host::OpenedModel> open_model(const ModelOptions& options, const ModelSource& source,
                                     const Logger& logger, std::optional<EngineOptions> engine = {},
                                     std::shared_ptr<const ModelPlan> plan = {});

/// OpenedModel::make_engine with a progress bar.
Result<std::unique_ptr<Engine>> make_engine(const host::OpenedModel& opened,
                                            const EngineOptions& options);

/// Which prompts an engine is for.
enum class Prompts {
  kKnown,    ///< EngineOptions::context_tokens is their window
  kOne,      ///< of texts without an end, say: the window is -c or what the machine holds
  kSeveral,  ///< likewise, with room for the prompts of earlier requests beside the one that runs
};
/// Of a model that shares its device with others.
struct DeviceShare {
  std::shared_ptr<host::DeviceOwner> device;
  uint64_t most_bytes = UINT64_MAX;  ///< of its memory, unless the least that is of use is more
  bool alone = true;                 ///< no other model is loaded
};
struct HostRequest {
  EngineOptions engine = {};
  Prompts prompts = Prompts::kKnown;
  DeviceShare share = {};  ///< without a device: the flags', opened for this model
  std::shared_ptr<const ModelPlan> plan = {};  ///< the source's, if it has been made
  std::optional<bool> forgets_messages = {};   ///< HostOptions::forgets_messages
  std::string draft_model = {};                ///< file of HostOptions::draft_model, if any
  bool predicts = false;                       ///< with HostOptions::prediction
};
/// The device of the flags, for several models.
Result<std::shared_ptr<host::DeviceOwner>> open_device_owner(const ModelOptions& options,
                                                             const Logger& logger);

/// The source's model, of the flags' file, on the flags' device, and a host of it, with progress
/// bars. It goes on after the loss of the device, and gives up after a few tries. Warns as
/// warn_beyond_training.
Result<std::unique_ptr<host::Host>> open_host(const ModelOptions& options,
                                              const ModelSource& source, host::ModelTexts texts,
                                              const Logger& logger, HostRequest request);

/// A model that embeds on the flags' device, with progress bars; it goes on after the loss of the
/// device. `plan`: of its program (build_embedding_program). Without -c its texts have at most
/// `most_tokens`, where the model was trained for more.
Result<std::unique_ptr<host::LastingEmbedder>> open_embedder(
    const ModelOptions& options, const GgufFile& file, host::ModelTexts texts, const Logger& logger,
    std::shared_ptr<const ModelPlan> plan, EmbedderOptions embedder, uint32_t most_tokens,
    const DeviceShare& share = {});

/// "a context of 32768 tokens is more than …", or nothing where the model was trained for as much.
std::string beyond_training(uint32_t context_tokens, uint32_t trained_tokens);
/// That, as a warning. To be said once the engine is there: a refusal is one line.
void warn_beyond_training(uint32_t context_tokens, uint32_t trained_tokens, const Logger& logger);

/// The context to run with: -c, else host::context_for's. Errors: kDoesNotFit.
Result<uint32_t> context_for(const ModelOptions& options, const Program& program,
                             size_t prompt_tokens, uint32_t new_tokens,
                             OverflowPolicy overflow = OverflowPolicy::kStop);

}  // namespace pumice::tools
