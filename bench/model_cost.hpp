// What a transformer must compute and move, counted on paper from the shapes of its tensors: no
// device, no weights. docs/BENCHMARKING.md ("The cost model") derives and cites the formulas.
//
// Conventions. One multiply-add is 2 flops. Attention counts the keys that each row sees, itself
// included: of a prompt read from an empty context that is P (P + 1) / 2 pairs, half of the square.
// Exponentials, divisions and comparisons are not counted. Weights count as in the file and are
// read once a step, by all rows together; keys and values of a sequence are read once a step, by
// all its rows and by all heads that share them. Logits are computed for the rows that ask for
// them. Activations are fp32, and each component reads and writes its own: that traffic may stay in
// caches, so it is counted apart and bounds nothing.
//
// Sources: Kaplan et al., "Scaling Laws for Neural Language Models", 2020, table 1; Hoffmann et
// al., "Training Compute-Optimal Large Language Models", 2022, appendix F; Chowdhery et al.,
// "PaLM", 2022, appendix B; Dao, "FlashAttention-2", 2023, section 4.1 (causal attention halved);
// Pope et al., "Efficiently Scaling Transformer Inference", 2022, section 2 (bytes of a step).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "format/gguf.hpp"
#include "models/synthetic.hpp"
#include "shaders/common/kv_layout.hpp"

namespace pumice::bench {

/// The parts of a step, as the decoder runs them; layers are summed.
enum class Component {
  kEmbedding,
  kNorms,            ///< with the additions of the residual stream
  kQkv,              ///< projections of q, k and v
  kRopeKv,           ///< rotation, and keys and values written to the cache
  kAttention,        ///< scores and values
  kAttentionOutput,  ///< projection of attention's output
  kRouter,           ///< scores of experts
  kGateUp,
  kActivation,  ///< of gate times up, and the weighted sum over experts
  kDown,
  kOutput,  ///< logits
};
inline constexpr size_t kComponentCount = 11;
std::string_view component_name(Component component);  ///< "attention output"

struct Amount {
  uint64_t flops = 0;
  uint64_t weight_bytes = 0;
  uint64_t kv_bytes = 0;          ///< keys and values read and written
  uint64_t activation_bytes = 0;  ///< see above: counted apart

  /// What has to come from memory, whatever the caches: weights, keys and values.
  uint64_t memory_bytes() const { return weight_bytes + kv_bytes; }
  uint64_t bytes() const { return memory_bytes() + activation_bytes; }
  /// Arithmetic intensity: flops for each of memory_bytes(); 0 without any.
  double flops_per_byte() const;

  Amount& operator+=(const Amount& other);
};

struct StepWork {
  std::array<Amount, kComponentCount> parts;

  Amount& operator[](Component c) { return parts.at(static_cast<size_t>(c)); }
  const Amount& operator[](Component c) const { return parts.at(static_cast<size_t>(c)); }
  Amount total() const;
  StepWork& operator+=(const StepWork& other);
};

/// Matrices of one kind, summed over layers. With experts: flops and values are of the experts that
/// a token goes through, bytes of all.
struct MatrixSum {
  uint64_t flops_per_row = 0;
  uint64_t weight_bytes = 0;
  uint64_t values_per_row = 0;  ///< activations read and written
};

/// What the cost model knows of a model.
struct ModelShape {
  std::string name;
  uint32_t n_layers = 0;
  uint32_t n_embd = 0;
  uint32_t n_heads = 0;
  uint32_t n_kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t rope_dims = 0;
  uint32_t n_ff = 0;  ///< of one expert
  uint32_t n_vocab = 0;
  uint32_t n_experts = 0;  ///< 0: a dense feed-forward
  uint32_t n_experts_used = 0;
  KvType kv_type = KvType::kF16;
  uint64_t n_params = 0;    ///< of every tensor
  uint64_t file_bytes = 0;  ///< of every tensor
  uint64_t embedding_row_bytes = 0;
  MatrixSum qkv, attn_output, router, gate_up, down, output;

  uint64_t q_dim() const { return uint64_t{n_heads} * head_dim; }
  uint64_t kv_dim() const { return uint64_t{n_kv_heads} * head_dim; }
  /// Keys and values of one position, all layers.
  uint64_t kv_bytes_per_token() const;
  /// Of n_experts, how many a step of so many rows is expected to read when every choice of
  /// n_experts_used is as likely as any other: E (1 - (1 - k/E)^rows).
  double experts_read(uint64_t n_rows) const;
};

/// Errors (kBadFile): a tensor or key is missing or does not fit, layers differ in having experts.
/// Tensor data need not be there.
Result<ModelShape> model_shape(const GgufFile& file, KvType kv_type);
Result<ModelShape> model_shape(const SyntheticModel& model, KvType kv_type);

/// Consecutive rows (tokens) of one sequence in a step.
struct StepRows {
  uint32_t first_position = 0;
  uint32_t n_rows = 0;
};

/// One step over a ragged batch.
StepWork step_cost(const ModelShape& shape, std::span<const StepRows> batch, uint32_t n_logit_rows);

/// Reading `n_prompt` tokens after `depth` tokens that are in the cache, in steps of at most
/// `step_tokens`; logits of the last row.
StepWork prefill_cost(const ModelShape& shape, uint32_t n_prompt, uint32_t depth,
                      uint32_t step_tokens);
/// `n_gen` steps of one row each, the first at position `depth`.
StepWork decode_cost(const ModelShape& shape, uint32_t n_gen, uint32_t depth);

/// The length from which on attention outweighs the feed-forward network, by one counting.
struct Crossing {
  std::string_view counting;
  std::string_view explanation;
  uint64_t scores_only = 0;       ///< tokens, if attention is scores and values only
  uint64_t with_projections = 0;  ///< if its four projections count as attention too
};
/// The usual countings: flops at a context of so many keys, where each row of a full square sees
/// them all (PaLM, Chinchilla); flops of a causal prompt of so many tokens (FlashAttention); bytes
/// of a decode step. A length of 1 means always.
std::vector<Crossing> crossings(const ModelShape& shape);

}  // namespace pumice::bench
