// What `run` and `logits` share: flags of model and engine, and everything opened from them.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "engine/engine.hpp"
#include "format/gguf.hpp"
#include "text/tokenizer.hpp"
#include "tools/device_options.hpp"
#include "tools/self_test.hpp"

namespace pumice::tools {

struct ModelOptions {
  std::string model;
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

  /// `default_math`, `default_kv`: what the subcommand uses unless told otherwise.
  void add_to(CLI::App& app, const std::string& default_math, const std::string& default_kv);
  /// -b and -ub, which `bench` has as lists.
  void add_batch_sizes(CLI::App& app);
  void add_synthetic_to(CLI::App& app);
  Status validate() const;
  /// The file, or "synthetic:preset:type".
  std::string model_name() const;
  /// Opens the file, or describes the synthetic model.
  Result<ModelSource> open_source() const;
  KvType kv_type() const;
  ops::Math math_kind() const;
};

/// --invariant, the same wherever it is offered.
CLI::Option* add_invariant(CLI::App& app, bool& invariant);

/// A model on a device, with its pipelines.
struct Session {
  std::shared_ptr<vk::Device> device;
  std::shared_ptr<vk::PipelineLibrary> pipelines;
  std::optional<SelfTestVerdict> verdict;  ///< of the device's passport
  std::shared_ptr<const Model> model;

  /// Opens the device and loads the model with a progress bar.
  static Result<Session> open(const ModelOptions& options, const ModelSource& source,
                              const Logger& logger);

  /// An engine for what `options` says; compiles pipelines with a progress bar. Warns of kernels
  /// that replace one that failed the device's self-test. Errors: kSelfTestFailed when an op is
  /// left without any.
  Result<std::unique_ptr<Engine>> make_engine(const EngineOptions& options,
                                              const Logger& logger) const;
};

/// The context to run with: -c, else exactly these tokens, which then must be within the length
/// that the model was made for (beyond it text turns to noise). Errors: kDoesNotFit.
Result<uint32_t> context_for(const ModelOptions& options, const Model& model, size_t prompt_tokens,
                             uint32_t new_tokens, OverflowPolicy overflow = OverflowPolicy::kStop);

/// The context for prompts not known yet: -c, else the length that the model was made for or what
/// this device's memory holds, whichever is less. Errors: kDoesNotFit.
Result<uint32_t> context_of_machine(const ModelOptions& options, const Session& session,
                                    const EngineOptions& engine, const Logger& logger);

/// Blocks for one running request and for the prompts of earlier ones: up to four contexts in what
/// memory is left.
uint32_t kv_blocks_for_reuse(const Session& session, const EngineOptions& engine);

}  // namespace pumice::tools
