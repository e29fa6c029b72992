#include "models/program_text.hpp"

#include <gtest/gtest.h>

#include <sstream>

#include "models/families.hpp"
#include "tests/shared_data.hpp"

namespace pumice {
namespace {

TEST(ProgramText, ReadsLikeTheFigure) {
  PUMICE_REQUIRE_SHARED(path, "reference/families/gemma3.gguf");
  const ModelSource source = ModelSource::open(path).value();
  EXPECT_EQ(program_text(build_program(source).value()),
            R"(gemma3, 6 layers, 130 operations, 80 tensors
state window: 5 slots, 2 kv heads of 64, window 32
state full: 1 slots, 2 kv heads of 64
  token_embd = embed(tokens; token_embd.weight)  128
  x = scale(token_embd; 11.3137)  128
layers 0 to 4
  attn_norm = rms_norm(x; attn_norm.weight; eps 1e-06)  128
  attn_q = linear(attn_norm; attn_q.weight)  256
  attn_q_norm = rms_norm(attn_q; attn_q_norm.weight; heads of 64, eps 1e-06)  256
  attn_q_norm.rope = rope(attn_q_norm; heads of 64, 64 dims, base 10000, halves)  256
  attn_k = linear(attn_norm; attn_k.weight)  128
  attn_k_norm = rms_norm(attn_k; attn_k_norm.weight; heads of 64, eps 1e-06)  128
  attn_k_norm.rope = rope(attn_k_norm; heads of 64, 64 dims, base 10000, halves)  128
  attn_v = linear(attn_norm; attn_v.weight)  128
  kv = append(attn_k_norm.rope, attn_v; state window)
  attention = attention(attn_q_norm.rope, kv; 4 heads of 64, 2 kv heads, scale 0.125, window 32)  256
  attn_output = linear(attention; attn_output.weight)  128
  post_attention_norm = rms_norm(attn_output; post_attention_norm.weight; eps 1e-06)  128
  add = add(x, post_attention_norm)  128
  ffn_norm = rms_norm(add; ffn_norm.weight; eps 1e-06)  128
  ffn_gate = linear(ffn_norm; ffn_gate.weight)  256
  ffn_gate.gelu_tanh = gelu_tanh(ffn_gate)  256
  ffn_up = linear(ffn_norm; ffn_up.weight)  256
  mul = mul(ffn_gate.gelu_tanh, ffn_up)  256
  ffn_down = linear(mul; ffn_down.weight)  128
  post_ffw_norm = rms_norm(ffn_down; post_ffw_norm.weight; eps 1e-06)  128
  x = add(add, post_ffw_norm)  128
layer 5
  attn_norm = rms_norm(x; attn_norm.weight; eps 1e-06)  128
  attn_q = linear(attn_norm; attn_q.weight)  256
  attn_q_norm = rms_norm(attn_q; attn_q_norm.weight; heads of 64, eps 1e-06)  256
  attn_q_norm.rope = rope(attn_q_norm; heads of 64, 64 dims, base 1000000, linear 8, halves)  256
  attn_k = linear(attn_norm; attn_k.weight)  128
  attn_k_norm = rms_norm(attn_k; attn_k_norm.weight; heads of 64, eps 1e-06)  128
  attn_k_norm.rope = rope(attn_k_norm; heads of 64, 64 dims, base 1000000, linear 8, halves)  128
  attn_v = linear(attn_norm; attn_v.weight)  128
  kv = append(attn_k_norm.rope, attn_v; state full)
  attention = attention(attn_q_norm.rope, kv; 4 heads of 64, 2 kv heads, scale 0.125)  256
  attn_output = linear(attention; attn_output.weight)  128
  post_attention_norm = rms_norm(attn_output; post_attention_norm.weight; eps 1e-06)  128
  add = add(x, post_attention_norm)  128
  ffn_norm = rms_norm(add; ffn_norm.weight; eps 1e-06)  128
  ffn_gate = linear(ffn_norm; ffn_gate.weight)  256
  ffn_gate.gelu_tanh = gelu_tanh(ffn_gate)  256
  ffn_up = linear(ffn_norm; ffn_up.weight)  256
  mul = mul(ffn_gate.gelu_tanh, ffn_up)  256
  ffn_down = linear(mul; ffn_down.weight)  128
  post_ffw_norm = rms_norm(ffn_down; post_ffw_norm.weight; eps 1e-06)  128
  x = add(add, post_ffw_norm)  128
after the layers
  output_norm = rms_norm(x; output_norm.weight; eps 1e-06)  128
  logits = linear(output_norm; token_embd.weight)  512
)");
}

TEST(ProgramText, OneOfAlikeLayersIsPrinted) {
  const SyntheticModel made = SyntheticModel::create({.n_layers = 5}, {}).value();
  Program program = build_program(ModelSource::synthetic(made).value()).value();
  const auto headings = [&] {
    std::string lines;
    std::istringstream text(program_text(program));
    for (std::string line; std::getline(text, line);) {
      if (line.rfind("layer", 0) == 0) lines += line + "\n";
    }
    return lines;
  };
  EXPECT_EQ(headings(), "layers 0 to 4\n");
  const Layer& layer = program.layers[3];
  for (uint32_t i = layer.first_op; i < layer.end_op; ++i) {
    if (auto* norm = std::get_if<op::RmsNorm>(&program.ops[i].what)) norm->eps = 1;
  }
  EXPECT_EQ(headings(), "layers 0 to 2\nlayer 3\nlayer 4\n");
}

}  // namespace
}  // namespace pumice
