// Small random transformers of families that have no golden file, and what they say: a forward pass
// in fp64 written from the papers, one token after the other, which shares nothing with Pumice's.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "tests/models/small_file.hpp"

namespace pumice::test {

inline constexpr float kRopeBase = 5000;
inline constexpr uint32_t kTemperatureTokens = 5;  ///< of PlainLatent::temperature

/// Experts in place of some layers' feed-forwards.
struct PlainExperts {
  uint32_t n = 0;  ///< 0: none
  uint32_t n_used = 2;
  uint32_t n_ff = 24;
  uint32_t n_ff_shared = 0;
  uint32_t n_dense_layers = 0;  ///< before the first
  uint32_t period = 1;          ///< of the others each such one has them
  bool sigmoid = false;         ///< of scores, rather than a softmax
  bool biased = false;          ///< in the choice
  bool renormalised = true;
  double scale = 1;
  /// Gemma 4's: beside a dense feed-forward, both sides with norms of their own and gelu gates, by
  /// a router with its own too, and each expert times a factor. Gates and ups are one tensor.
  bool beside_dense = false;
};

/// Keys and values made of a latent; a head's last numbers are keys of their own, which turn.
struct PlainLatent {
  uint32_t rank = 0;  ///< 0: none
  uint32_t q_rank = 0;
  uint32_t value_dim = 0;
  bool fused = false;         ///< one matrix makes keys and values
  double rope_magnitude = 1;  ///< of what turns
  double temperature = 0;  ///< of q, the more by 1 + that · ln(1 + position / kTemperatureTokens)
};

/// What tells such families apart; as Llama where nothing is said.
struct PlainForm {
  enum class Turn { kNone, kNeighbours, kHalves };
  enum class Norm { kRms, kMean, kMeanWithoutBias };
  enum class QkNorm {
    kNone,
    kHeads,     ///< an RMSNorm of each head, with the same weights
    kRow,       ///< one RMSNorm of all heads at once
    kEachHead,  ///< a norm with a mean of each head, with weights of its own
  };
  enum class Output { kTied, kOwn, kOwnWithBias };
  enum class Pattern { kUnsaid, kBools, kNumbers };

  std::string name;  ///< of the test
  std::string architecture;
  uint32_t n_embd = 64;
  uint32_t n_heads = 4;
  uint32_t n_kv_heads = 2;
  uint32_t head_dim = 16;
  uint32_t value_dim = 0;  ///< numbers of a value; 0: head_dim
  uint32_t n_ff = 96;
  uint32_t n_layers = 2;
  double embedding_scale = 1;
  Norm norm = Norm::kRms;
  bool norms_before = true;       ///< attention and feed-forward read x normed
  bool norms_after = false;       ///< what they add to x is normed
  bool feed_forward_norm = true;  ///< the feed-forward has its own norm before, not attention's
  bool parallel = false;          ///< attention and feed-forward both read the layer's input
  Turn turn = Turn::kHalves;
  uint32_t rope_dims = 16;
  bool learned_positions = false;
  std::vector<uint32_t> windows = {};  ///< keys that a token of a layer sees; 0 or no entry: all
  Pattern pattern = Pattern::kUnsaid;  ///< how the file says which layers have one
  bool full_layers_turn = true;        ///< layers without a window have a rope
  uint32_t n_window_kv_heads = 0;      ///< of layers with a window; 0: n_kv_heads
  float window_rope_base = kRopeBase;  ///< likewise
  bool window_sinks = false;           ///< their heads have a key without value
  double attention_scale = 1;          ///< of attention's output
  double scale = 0;                    ///< of scores; 0: 1 / √head_dim
  QkNorm qk_norm = QkNorm::kNone;
  bool value_norm = false;      ///< heads of v are normed too, without weights
  bool keys_as_values = false;  ///< layers without a window have no matrix for v: k's product is it
  bool fused_qkv = false;       ///< one matrix
  bool qkv_bias = false;
  bool output_bias = false;  ///< of attention's output
  /// LFM2's: in place of a layer's attention each number is mixed with so many tokens' before it,
  /// its own included, between two gates; 0 or no entry: the layer attends.
  std::vector<uint32_t> taps = {};
  bool gelu_gate = false;  ///< gelu(gate) rather than silu(gate)
  bool gated = true;       ///< silu(gate) · up, without biases, rather than gelu(up) with them
  Output output = Output::kOwn;
  PlainExperts experts = {};
  PlainLatent latent = {};
  std::string ffn_norm = "ffn_norm";
  std::string output_norm = "output_norm";
  double residual_scale = 1;         ///< of what blocks add
  uint32_t n_prediction_blocks = 0;  ///< behind the layers, of which `logits` knows nothing
  bool prediction_has_own = false;   ///< those have an embedding, a last norm and an output
  bool prediction_is_dense = false;  ///< they have no experts where the layers have some
  double logit_scale = 1;
  using Number = std::variant<bool, uint32_t, float, const char*>;
  /// Further keys of the metadata, "<architecture>." left out, or other values of keys.
  std::map<std::string, Number> keys = {};
  std::map<std::string, std::vector<uint32_t>> array_keys = {};  ///< likewise
};

inline void PrintTo(const PlainForm& form, std::ostream* out) { *out << form.name; }

class PlainTransformer {
 public:
  static constexpr uint32_t kVocab = 72;
  static constexpr uint32_t kContext = 64;

  explicit PlainTransformer(PlainForm form);

  /// Adds to the numbers of a tensor.
  void add_to(const std::string& tensor, std::span<const double> added);

  GgufHeader header() const;
  const std::vector<SmallTensor>& tensors() const { return tensors_; }
  /// The model as a file in memory.
  std::unique_ptr<SmallFile> file() const;
  /// [token][kVocab]
  std::vector<double> logits(std::span<const uint32_t> tokens) const;
  /// [token][n_embd]: what the output matrix reads.
  std::vector<double> hidden(std::span<const uint32_t> tokens) const;
  /// [token][n_embd]: what the output of `predicted` reads.
  std::vector<double> predicted_hidden(std::span<const uint32_t> next,
                                       std::span<const double> hidden) const;
  /// [token][kVocab]: of the first block behind the layers, of what follows the tokens that follow
  /// those that `hidden` is of.
  std::vector<double> predicted(std::span<const uint32_t> next,
                                std::span<const double> hidden) const;

 private:
  using Row = std::vector<double>;
  /// Rows of each layer, of the tokens so far.
  struct Cache {
    std::vector<std::vector<Row>> keys;
    std::vector<std::vector<Row>> values;
  };
  struct Qkv {
    Row q, k, v;
  };

  std::map<std::string, PlainForm::Number> keys() const;
  void add(const std::string& name, std::vector<uint64_t> dims, float mean = 0);
  void add_linear(const std::string& stem, uint32_t n_inputs, uint32_t n_outputs, bool bias);
  void add_norm(const std::string& stem);
  void add_layer(uint32_t index);
  void add_prediction(uint32_t index);
  void add_attention(uint32_t index, bool has_values);
  void add_latent(const std::string& layer);
  void add_convolution(const std::string& layer, uint32_t n_taps);
  void add_feed_forward(const std::string& layer, uint32_t n_ff, const std::string& suffix);
  void add_experts(const std::string& layer);
  bool has_experts(uint32_t layer) const {
    if (form_.prediction_is_dense && layer >= form_.n_layers) return false;
    return form_.experts.n != 0 && layer >= form_.experts.n_dense_layers &&
           (layer + 1) % form_.experts.period == 0;
  }
  const std::vector<float>& values(const std::string& name) const;
  bool has(const std::string& name) const { return index_.contains(name); }
  uint32_t window(uint32_t layer) const {
    return layer < form_.windows.size() ? form_.windows[layer] : 0;
  }
  uint32_t taps(uint32_t layer) const { return layer < form_.taps.size() ? form_.taps[layer] : 0; }
  bool has_latent() const { return form_.latent.rank != 0; }
  uint32_t n_still() const { return form_.head_dim - form_.rope_dims; }
  uint32_t q_dim() const { return form_.n_heads * form_.head_dim; }
  uint32_t value_dim() const { return form_.value_dim != 0 ? form_.value_dim : form_.head_dim; }
  uint32_t n_kv_heads(uint32_t layer) const {
    return window(layer) != 0 && form_.n_window_kv_heads != 0 ? form_.n_window_kv_heads
                                                              : form_.n_kv_heads;
  }

  Row embedding(uint32_t token, uint32_t position) const;
  Row run_layer(uint32_t index, const Row& x, Cache& cache) const;
  Qkv qkv(uint32_t index, const Row& x) const;
  Qkv latent_qkv(const std::string& layer, const Row& x, size_t position) const;
  Cache empty_cache() const;
  std::string output() const {
    return form_.output == PlainForm::Output::kTied ? "token_embd" : "output";
  }
  Row linear(const Row& x, const std::string& stem) const;
  Row norm(const Row& x, const std::string& stem) const;
  Row norm_heads(const Row& x, const std::string& stem) const;
  /// Heads' numbers from `first` on.
  Row turned(const Row& x, size_t position, uint32_t first = 0, double base = kRopeBase) const;
  /// `sinks`: scores of the heads' keys without value; empty: there are none.
  Row attention(const Row& q, const std::vector<Row>& keys, const std::vector<Row>& values,
                uint32_t window, const std::vector<float>& sinks) const;
  /// What a layer adds to x, of its input normed: attention's, and the convolution's, for which
  /// `rows` are what it has mixed so far.
  Row attended(uint32_t index, const Row& h, Cache& cache) const;
  Row convolved(const std::string& layer, const Row& h, std::vector<Row>& rows) const;
  Row feed_forward(const Row& x, const std::string& layer, const std::string& suffix) const;
  /// Of x, as a router chooses for `router_x`.
  Row experts(const Row& x, const Row& router_x, const std::string& layer) const;
  /// Of what has no norm yet, `x`, and the feed-forward's input.
  Row experts_beside(const Row& x, const Row& f, const std::string& layer) const;
  double gate(double x) const;
  Row expert_linear(const Row& x, const std::string& stem, size_t expert) const;

  PlainForm form_;
  std::vector<SmallTensor> tensors_;
  std::map<std::string, size_t> index_;
};

/// Forms that the shared data has no file for.
std::vector<PlainForm> forms_without_a_file();
/// One of them whose values are smaller than keys, both in heads that every type of KV holds.
PlainForm form_with_small_values();
/// Those that have blocks behind their layers.
std::vector<PlainForm> forms_that_predict();

}  // namespace pumice::test
