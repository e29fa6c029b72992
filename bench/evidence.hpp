// Evidence that a device computes a model right, for the record of a benchmark: the logits of a
// fixed prompt, through the engine and the arithmetic that are measured, against fp64 on the CPU.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "engine/engine.hpp"
#include "models/model_source.hpp"
#include "models/reference.hpp"

namespace pumice::bench {

inline constexpr uint32_t kEvidenceTokens = 2 * kKvBlockTokens;
inline constexpr uint32_t kEvidenceDecodeTokens = 8;

/// The prompt of every model with such a vocabulary, on every machine.
std::vector<TokenId> evidence_prompt(uint32_t n_vocab, uint32_t n_tokens = kEvidenceTokens);

/// Of all of them, in steps of 2^-10, far above what the order of a sum changes: so it tells other
/// kernels and devices from the same ones, not a good one from a bad one.
uint64_t logits_digest(std::span<const float> logits);

/// One way of computing the prompt.
struct EvidencePass {
  /// "prefill" (all tokens at once), "decode" (the last ones, each by itself), "batch" (behind
  /// another's rows).
  std::string name;
  uint32_t n_tokens = 0;      ///< the last ones of the prompt, whose logits are compared
  uint32_t rows = 0;          ///< of a step
  double nmse = 0;            ///< Σ (logit − reference)² / Σ reference²; infinite for NaN
  uint32_t top1_differ = 0;   ///< positions whose best token is another, the margin being clear
  uint32_t top1_unclear = 0;  ///< positions whose margin is too small to say
  uint64_t digest = 0;        ///< of the logits, rounded: equal for equal kernels and devices
  std::vector<TokenId> top1;  ///< of each of them
};

struct Evidence {
  std::shared_ptr<const ReferenceLogits> reference;  ///< what was compared with
  uint32_t n_tokens = 0;
  uint32_t layers_checked = 0;  ///< of n_layers: the first ones, then the output
  uint32_t n_layers = 0;
  double bound = 0;       ///< of nmse, for the arithmetic that ran
  std::string bound_for;  ///< "f32 arithmetic, f16 KV"
  double reference_seconds = 0;
  std::vector<EvidencePass> passes;
  std::set<std::string> variants;  ///< kernels that ran in any of them

  /// Kernels among `measured` that no pass ran.
  std::set<std::string> unchecked(const std::set<std::string>& measured) const;
};

struct EvidenceOptions {
  KvTypes kv_type;
  ops::Math math = ops::Math::kAuto;
  double seconds = 20;  ///< of the fp64 pass: layers that would take it longer are left out
  /// Rows before the prompt's in "batch", so that kernels for many rows run; 0: no such pass.
  uint32_t batch_rows = 120;
  std::function<bool()> stop = {};
  /// Of an earlier evidence of the same model, which then is not computed again.
  std::shared_ptr<const ReferenceLogits> reference = {};
};

/// Compute the evidence; that something is wrong is no error here. `source` is what `model` was
/// loaded from. Errors: those of Engine::create and step, kCancelled.
Result<Evidence> gather_evidence(const std::shared_ptr<vk::PipelineLibrary>& pipelines,
                                 const std::shared_ptr<const Model>& model,
                                 const ModelSource& source, const EvidenceOptions& options);

/// Errors (kSelfTestFailed): a pass is beyond the bound or chose another token.
Status verdict(const Evidence& evidence);

nlohmann::json to_json(const Evidence& evidence);
/// A line for people: "logits within 3.1e-10 of fp64 (bound 1.0e-06, …)".
std::string describe(const Evidence& evidence);

}  // namespace pumice::bench
