// Small random transformers of families that have no golden file, and what they say: a forward pass
// in fp64 written from the papers, one token after the other, which shares nothing with Pumice's.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/models/small_file.hpp"

namespace pumice::test {

/// What tells such families apart. All have norms with a mean.
struct PlainShape {
  enum class Turn { kNone, kNeighbours, kHalves };

  std::string architecture;
  uint32_t n_layers = 2;
  uint32_t n_heads = 4;
  uint32_t n_kv_heads = 2;
  Turn turn = Turn::kHalves;
  uint32_t rope_dims = 8;
  std::vector<uint32_t> windows = {};  ///< keys that a token of a layer sees; 0 or no entry: all
  bool full_layers_turn = true;        ///< layers without a window have a rope
  bool learned_positions = false;
  double scale = 0.25;  ///< of scores
  bool norm_bias = true;
  bool parallel = false;    ///< attention and feed-forward both read the layer's input
  bool second_norm = true;  ///< the feed-forward has its own norm, rather than attention's
  bool head_norms = false;  ///< of q and k, each head with its own weights
  bool fused_qkv = false;   ///< one matrix
  bool qkv_bias = true;
  bool output_bias = true;  ///< of attention's output
  bool gated = false;       ///< silu(gate) · up, without biases, rather than gelu(up) with them
  bool own_output = false;  ///< a matrix for the logits with a bias, not the embedding's
  double logit_scale = 1;
  /// Keys of the metadata that say what is above.
  std::map<std::string, float> floats = {};
  std::map<std::string, bool> bools = {};
  std::map<std::string, uint32_t> counts = {};
};

class PlainTransformer {
 public:
  static constexpr uint32_t kVocab = 72;
  static constexpr uint32_t kContext = 64;

  explicit PlainTransformer(PlainShape shape);

  /// The model as a file in memory.
  std::unique_ptr<SmallFile> file() const;
  /// [token][kVocab]
  std::vector<double> logits(const std::vector<uint32_t>& tokens) const;

 private:
  using Row = std::vector<double>;
  struct Layer;

  void add(const std::string& name, std::vector<uint64_t> dims, float mean = 0);
  void add_linear(const std::string& stem, uint32_t n_inputs, uint32_t n_outputs, bool bias);
  void add_norm(const std::string& stem);
  const std::vector<float>& values(const std::string& name) const;
  bool has(const std::string& name) const { return index_.contains(name); }

  Row linear(const Row& x, const std::string& stem) const;
  Row layer_norm(const Row& x, const std::string& stem) const;
  Row norm_heads(const Row& x, const std::string& stem) const;
  Row turned(const Row& x, uint32_t position) const;
  Row attention(const Row& q, const std::vector<Row>& keys, const std::vector<Row>& values,
                uint32_t window) const;
  Row feed_forward(const Row& x, const std::string& layer) const;

  PlainShape shape_;
  std::vector<SmallTensor> tensors_;
  std::map<std::string, size_t> index_;
};

/// Forms that the shared data has no file for.
std::vector<PlainShape> forms_without_a_file();

}  // namespace pumice::test
