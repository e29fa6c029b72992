// What a model must compute and move, counted on paper from its program and the types of its
// tensors: no device, no weights. docs/BENCHMARKING.md ("The cost model") derives and cites the
// formulas.
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
#include "models/model_source.hpp"
#include "models/parts.hpp"
#include "models/synthetic.hpp"
#include "shaders/common/kv_layout.hpp"

namespace pumice::bench {

struct Amount {
  uint64_t flops = 0;
  uint64_t weight_bytes = 0;
  uint64_t kv_bytes = 0;          ///< keys, values and states read and written
  uint64_t activation_bytes = 0;  ///< see above: counted apart

  /// What has to come from memory, whatever the caches: weights, keys and values.
  uint64_t memory_bytes() const { return weight_bytes + kv_bytes; }
  uint64_t bytes() const { return memory_bytes() + activation_bytes; }
  /// Arithmetic intensity: flops for each of memory_bytes(); 0 without any.
  double flops_per_byte() const;

  Amount& operator+=(const Amount& other);
};

struct StepWork {
  std::array<Amount, kPartCount> parts;

  Amount& operator[](Part c) { return parts.at(static_cast<size_t>(c)); }
  const Amount& operator[](Part c) const { return parts.at(static_cast<size_t>(c)); }
  Amount total() const;
  StepWork& operator+=(const StepWork& other);
};

/// What operations of one part cost together, a row and a step. Rows are the step's, or those whose
/// logits are asked for: of what follows the last layer.
struct PartCost {
  Part part = Part::kEmbedding;
  bool logit_rows = false;
  uint32_t window = 0;  ///< of attention: a row sees so many keys; 0: all
  uint32_t ahead = 0;   ///< of them so many are behind it (op::Attention)

  uint64_t flops = 0;                ///< a row; with experts: of those a token goes through
  uint64_t values = 0;               ///< activations read and written, a row
  uint64_t row_weight_bytes = 0;     ///< of weights, a row
  uint64_t step_weight_bytes = 0;    ///< of weights, once a step
  uint64_t expert_weight_bytes = 0;  ///< of all experts together
  uint64_t written_kv_bytes = 0;     ///< a row
  uint64_t pair_flops = 0;           ///< for each key that a row sees
  uint64_t key_bytes = 0;            ///< for each key that rows of a sequence see
  uint64_t state_bytes = 0;          ///< of a sequence, read and written once a step
  // Of attention to latents by the keys and values that they stand for, which is counted where it
  // is less: what pair_flops are then, and the products of a key that the step has not brought.
  uint64_t expanded_pair_flops = 0;
  uint64_t expanded_key_flops = 0;
};

/// What the cost model knows of a model: its program, priced. Widths and heads are of the first
/// operation that has them, for reports.
struct ModelShape {
  std::string name;
  uint32_t n_layers = 0;
  uint32_t n_embd = 0;
  uint32_t n_heads = 0;
  uint32_t n_kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t n_ff = 0;  ///< of one expert
  uint32_t n_vocab = 0;
  uint32_t n_experts = 0;  ///< 0: a dense feed-forward
  uint32_t n_experts_used = 0;
  KvTypes kv_type;
  uint64_t n_params = 0;    ///< of every tensor
  uint64_t file_bytes = 0;  ///< of every tensor
  std::vector<PartCost> costs;

  /// Keys and values of one position, all layers.
  uint64_t kv_bytes_per_token() const;
  /// Of one row and one key that it sees, all layers.
  uint64_t flops_per_pair() const;
  /// Of n_experts, how many a step of so many rows is expected to read when every choice of
  /// n_experts_used is as likely as any other: E (1 - (1 - k/E)^rows).
  double experts_read(uint64_t n_rows) const;
};

/// Prices what `build_program` makes of the model; errors are that one's.
Result<ModelShape> model_shape(const ModelSource& source, KvTypes kv_type);
Result<ModelShape> model_shape(const SyntheticModel& model, KvTypes kv_type);

/// Consecutive rows (tokens) of one sequence in a step.
struct StepRows {
  uint32_t first_position = 0;
  uint32_t n_rows = 0;
};

/// One step over a ragged batch.
StepWork step_cost(const ModelShape& shape, std::span<const StepRows> batch, uint32_t n_logit_rows);

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
