// A configuration to measure, as users write it: "math=i8,kv=f32,variant=-gemm.*.i8".
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "engine/engine.hpp"
#include "vk/pipeline.hpp"

namespace pumice::bench {

/// What differs from the options of the command line. KEY=VALUE, separated by commas:
///   math=auto|f32|f16|i8                     arithmetic
///   kv=f16, kv=q8_0-f16                      type of cached keys and values, or of each
///   chunk=N  batch=N                         prompt tokens, all tokens of a step
///   split=N                                  tokens of an attention split, a multiple of 16
///   prefix_cache= run_ahead= invariant=      on|off
///   fuse=RULE                                of the fusion rules (lowering.hpp) this one alone
///   fuse=-RULE                               all but this one; also fuse=none
///   variant=NAME                             kernels of this name and no other of their family
///   variant=-NAME                            not these; NAME may hold *, as in gemm.*.i8
///   limit=WORD                               what --limit takes
/// variant and limit may be given several times and add up; of other keys the last counts.
struct Configuration {
  std::string text;  ///< as it was given
  std::optional<ops::Math> math = {};
  std::optional<KvTypes> kv_type = {};
  std::optional<uint32_t> chunk_tokens = {};
  std::optional<uint32_t> token_budget = {};
  std::optional<uint32_t> split_tokens = {};
  std::optional<bool> prefix_cache = {};
  std::optional<bool> run_ahead = {};
  std::optional<bool> invariant = {};
  std::optional<FusionRules> fusion = {};
  std::vector<std::string> variants = {};  ///< with the "-" of those to go without
  std::string limit = {};                  ///< words separated by commas

  /// Empty text and "null" change nothing. Errors: kInvalidArgument, naming the word.
  static Result<Configuration> parse(std::string_view text);

  std::string name() const { return text.empty() ? "default" : text; }
  EngineOptions applied_to(EngineOptions options) const;
};

/// From now on `pipelines` are without the kernels that a configuration's variants rule out, and
/// may use those that they name. Errors: kInvalidArgument for a name that no kernel of this build
/// has.
Status choose_variants(vk::PipelineLibrary& pipelines, const Configuration& configuration);

/// The rows of tuning by which ops chose their kernels and sizes so far: [{"shape", "row", "from"}].
nlohmann::json tuning_to_json(const vk::PipelineLibrary& pipelines);

/// The options that a configuration can change, as records carry them.
nlohmann::json options_to_json(const EngineOptions& options);

}  // namespace pumice::bench
