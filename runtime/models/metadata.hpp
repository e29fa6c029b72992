// Reading the metadata keys that families share ("<architecture>.block_count" and so on).
#pragma once

#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "models/model_source.hpp"
#include "models/program.hpp"

namespace pumice {

/// Sizes that nearly every family has.
struct ModelDimensions {
  std::string architecture;  ///< general.architecture
  std::string name;          ///< general.name; may be empty
  uint32_t n_layers = 0;
  uint32_t n_embd = 0;
  uint32_t n_heads = 0;  ///< a multiple of n_kv_heads
  uint32_t n_kv_heads = 0;
  uint32_t head_dim = 0;   ///< a multiple of 8, at most 512
  uint32_t value_dim = 0;  ///< likewise, at most head_dim: numbers of a value
  uint32_t n_ff = 0;
  uint32_t n_vocab = 0;
  uint32_t context_length = 0;

  uint32_t q_dim() const { return n_heads * head_dim; }
  uint32_t kv_dim() const { return n_kv_heads * head_dim; }
};

/// Which of a file's blocks a program is of.
enum class ModelPart {
  kLayers,
  /// The first block behind the layers, which predicts the token after the next (multi-token
  /// prediction: DeepSeek-AI, "DeepSeek-V3", 2024, section 2.2).
  kPrediction,
};

/// Those blocks, and the stems of what a program has before and behind them.
struct Blocks {
  ModelPart part = ModelPart::kLayers;
  uint32_t first = 0;
  uint32_t end = 0;
  uint32_t n_prediction = 0;  ///< of the file, behind its layers
  std::string embedding = "token_embd";
  std::string norm = "output_norm";
  std::string output;

  bool predicts() const { return part == ModelPart::kPrediction; }
  /// Name of the first one's tensor.
  std::string tensor(std::string_view name) const {
    return "blk." + std::to_string(first) + "." + std::string(name);
  }
};

/// Experts of a model, the same in all layers that have some.
struct ExpertSource {
  uint32_t n_experts = 0;    ///< 0: every feed-forward is dense
  uint32_t n_used = 0;       ///< of them by a token
  uint32_t n_ff = 0;         ///< of an expert
  uint32_t n_ff_shared = 0;  ///< of what all tokens take besides; 0: nothing
  Router router;
};

/// Multi-head latent attention's sizes. DeepSeek-AI, "DeepSeek-V2", 2024.
struct LatentSource {
  uint32_t rank = 0;       ///< of what keys and values are made of
  uint32_t q_rank = 0;     ///< of what queries are made of; 0: of x itself
  uint32_t n_still = 0;    ///< numbers of a head that do not turn, the first
  uint32_t n_turning = 0;  ///< those behind them
  uint32_t value_dim = 0;  ///< of a head
  bool fused = false;      ///< keys' and values' matrices are rows of one, attn_kv_b
};

/// A rotary embedding, and the tensors that were read for it.
struct RopeSource {
  ops::RopeConfig config;
  std::vector<TensorSpec> tensors = {};
};

/// A tensor of one number, read.
struct ScalarSource {
  double value = 1;
  TensorSpec tensor;
};

/// What a family's page reads of a file. It notes each key it is asked for: one that the page never
/// asks for has no part in what it builds, which check_keys (program_keys.hpp) then holds against
/// the file. So a page asks only for what it uses. One thread at a time.
class Metadata {
 public:
  /// Whether keys may say another number for each layer.
  enum class Layers {
    kAlike,
    kDiffer,
    kSomeHaveNone,  ///< the numbers may be 0, too, but not of all layers
  };
  /// Whether values may be smaller than keys.
  enum class Values { kAsKeys, kSmaller };
  /// Experts that all tokens take: what the page computes of them.
  enum class SharedExperts {
    kNone,
    kOfWidth,  ///< of all of them together, which files say
    kCounted,  ///< likewise, or as many times an expert's as there are
  };
  static constexpr uint32_t kMaxLayers = 1024;

  /// `architecture`: of the file, which keys' names begin with.
  Metadata(const ModelSource& source, std::string_view architecture)
      : source_(source), file_(source.file()), prefix_(architecture) {}

  const GgufFile& file() const { return file_; }
  const std::string& architecture() const { return prefix_; }
  /// Whether the key was asked for, by any of what follows.
  bool asked_for(std::string_view key) const { return asked_.contains(key); }
  /// These keys are known, and have no part in what is computed.
  void leave_out(std::initializer_list<std::string_view> keys) const {
    for (const std::string_view key : keys) asked_.emplace(key);
  }

  /// The value of "<architecture>.<key>", which must exist.
  template <typename T>
  Result<T> get(std::string_view key) const {
    return file_.get<T>(asking(key));
  }
  template <typename T>
  Result<T> get_or(std::string_view key, T fallback) const {
    return file_.get_or<T>(asking(key), fallback);
  }

  template <typename T>
  Result<std::vector<T>> get_vector(std::string_view key) const {
    return file_.get_vector<T>(asking(key), kMaxLayers);
  }
  bool has(std::string_view key) const { return find(key) != nullptr; }

  /// Whether the file has that tensor.
  bool has_tensor(std::string_view name) const { return file_.find_tensor(name) != nullptr; }

  /// Stem of the output matrix: the embedding's where they are tied.
  std::string_view output_stem() const {
    return has_tensor("output.weight") ? "output" : "token_embd";
  }

  /// Checks ranges. The vocabulary size comes from the embedding tensor, which the file must have.
  /// Where layers differ, n_ff, n_heads and n_kv_heads are the largest. Where some have none, heads
  /// share the largest number of kv heads.
  Result<ModelDimensions> read_dimensions(Layers layers = Layers::kAlike,
                                          Values values = Values::kAsKeys) const;
  /// The same of a model with latent attention: heads are of what is multiplied, n_still and
  /// n_turning numbers, whose sizes `latent` gets.
  Result<ModelDimensions> read_latent_dimensions(LatentSource& latent,
                                                 Layers layers = Layers::kAlike) const;
  /// A positive count for each layer, of a key with one for all or as many as layers; with
  /// kSomeHaveNone it may be 0.
  Result<std::vector<uint32_t>> read_layer_counts(std::string_view key, uint32_t n_layers,
                                                  Layers layers = Layers::kDiffer) const;
  /// Whether it is so of each layer, of a key with as many bools as layers, or numbers 0 and 1.
  Result<std::vector<bool>> read_layer_flags(std::string_view key, uint32_t n_layers) const;
  /// A size of heads: a multiple of 8 that kernels compute.
  Result<uint32_t> read_head_dim(std::string_view key, uint32_t fallback) const;
  /// A positive count of at most `limit`.
  Result<uint32_t> read_count(std::string_view key, uint32_t limit = 1u << 20) const;
  /// Taps of a causal convolution: more than one, and no more than its kernel has.
  Result<uint32_t> read_taps(std::string_view key) const;
  /// Errors (kBadFile): a layer has another number of kv heads than the largest, or none.
  Status expect_kv_heads(uint32_t n_kv_heads, const ModelDimensions& dimensions,
                         uint32_t layer) const;
  Result<ScalarSource> read_scalar(std::string_view tensor) const;
  /// expert_count and what belongs to it. `router`: what holds of a file that does not say it.
  Result<ExpertSource> read_experts(const ModelDimensions& dimensions, const Router& router = {},
                                    SharedExperts shared = SharedExperts::kCounted) const;
  /// leading_dense_block_count: the first layers, whose feed-forwards are dense where others have
  /// experts.
  Result<uint32_t> read_dense_layers(const ModelDimensions& dimensions) const;
  /// The blocks of a part. nextn_predict_layers says how many of the last ones predict tokens after
  /// the next: they are no layers of `dimensions` any more. What a block that predicts does not
  /// have of its own, an embedding, a norm or an output, is the model's. Errors (kBadFile): there
  /// is no such block.
  Result<Blocks> read_blocks(ModelDimensions& dimensions, ModelPart part) const;
  /// attention.layer_norm_rms_epsilon
  Result<float> read_rms_eps() const;
  /// attention.layer_norm_epsilon
  Result<float> read_layer_norm_eps() const;
  /// pooling_type: how rows of tokens become the embedding of a text; none where the file does not
  /// say.
  Result<std::optional<Pooling>> read_pooling() const;
  /// Whether pooling_type says that the model ranks texts (ranking.hpp), of which `read_pooling` says
  /// nothing.
  bool ranks() const;
  /// Strings, none where the file does not say. Errors (kBadFile): more than `limit`.
  Result<std::vector<std::string>> read_names(std::string_view key, size_t limit) const;
  /// Errors (kBadFile): attention.causal says that tokens do not see those after them.
  Status expect_not_causal() const;
  /// attention.sliding_window, in keys that a query sees with its own.
  Result<uint32_t> read_window(uint32_t fallback) const;
  /// attention.sliding_window_pattern, n > 0: each n-th layer has no window.
  Result<uint32_t> read_window_period(uint32_t fallback) const;
  /// A soft cap or another factor, above 0.
  Result<double> read_positive(std::string_view key, double fallback) const;
  /// A number for each layer, not negative, of a key with one for all or as many as layers.
  Result<std::vector<double>> read_layer_numbers(std::string_view key, uint32_t n_layers,
                                                 double fallback) const;

  /// Rotary dimensions, base and scaling: none, linear, yarn, the divisors of rope_freqs, or
  /// LongRoPE's, both.
  Result<RopeSource> read_rope(const ModelDimensions& dimensions) const;

 private:
  Status read_router(ExpertSource& experts) const;
  /// All but head_dim.
  Result<ModelDimensions> read_widths(Layers layers) const;
  Status read_shared(ExpertSource& experts, SharedExperts shared) const;
  std::string full(std::string_view key) const { return prefix_ + "." + std::string(key); }
  /// The key's full name, noted.
  std::string asking(std::string_view key) const {
    asked_.emplace(key);
    return full(key);
  }
  const GgufValue* find(std::string_view key) const { return file_.find(asking(key)); }
  /// A key's value as it is, if it is in its range.
  Result<uint32_t> in_range(std::string_view key, uint64_t value, uint32_t least,
                            uint32_t most) const;
  Result<uint32_t> largest_count(std::string_view key, uint32_t limit, Layers layers) const;
  Result<uint32_t> original_context(const ModelDimensions& dimensions) const;
  /// Divisors of the rotary frequencies, [dims / 2]; their tensor is added to the rope's.
  Result<std::vector<float>> read_divisors(std::string_view tensor, RopeSource& rope) const;

  const ModelSource& source_;
  const GgufFile& file_;
  std::string prefix_;
  mutable std::set<std::string, std::less<>> asked_;  // a note of reading, which pages do as const
};

}  // namespace pumice
