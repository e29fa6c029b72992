// What the decoder needs to know of a model, whatever family it comes from. Plain data.
#pragma once

#include <cstdint>
#include <string>

#include "shaders/common/kv_layout.hpp"
#include "shaders/rope_kv/rope_table.hpp"

namespace pumice {

struct ModelConfig {
  std::string architecture;  ///< general.architecture
  std::string name;          ///< general.name; may be empty
  uint32_t n_layers = 0;
  uint32_t n_embd = 0;
  uint32_t n_heads = 0;  ///< a multiple of n_kv_heads
  uint32_t n_kv_heads = 0;
  uint32_t head_dim = 0;  ///< a multiple of 8, at most 256
  uint32_t n_ff = 0;
  uint32_t n_vocab = 0;
  uint32_t context_length = 0;  ///< what the model was trained for, in tokens
  float norm_eps = 0;
  bool rope_halves = false;  ///< rotate (i, i + dims/2) instead of (2i, 2i + 1)
  ops::RopeConfig rope;

  uint32_t q_dim() const { return n_heads * head_dim; }
  uint32_t kv_dim() const { return n_kv_heads * head_dim; }
  KvLayout kv_layout(KvType type) const {
    return {.type = type, .n_layers = n_layers, .n_kv_heads = n_kv_heads, .head_dim = head_dim};
  }
};

/// Names of a model's tensors in its file. Per-layer names follow "blk.N.".
struct TensorNames {
  std::string token_embd = "token_embd.weight";
  std::string output_norm = "output_norm.weight";
  std::string output = "output.weight";          ///< absent from the file: tied to token_embd
  std::string rope_freqs = "rope_freqs.weight";  ///< optional divisors of the rotary frequencies
  std::string attn_norm = "attn_norm.weight";
  std::string attn_q = "attn_q.weight";
  std::string attn_k = "attn_k.weight";
  std::string attn_v = "attn_v.weight";
  std::string attn_output = "attn_output.weight";
  std::string ffn_norm = "ffn_norm.weight";
  std::string ffn_gate = "ffn_gate.weight";
  std::string ffn_up = "ffn_up.weight";
  std::string ffn_down = "ffn_down.weight";

  std::string layer(uint32_t index, const std::string& tensor) const {
    return "blk." + std::to_string(index) + "." + tensor;
  }
};

struct ModelDescription {
  ModelConfig config;
  TensorNames names;
};

}  // namespace pumice
