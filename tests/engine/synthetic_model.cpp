#include "tests/engine/synthetic_model.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>

#include "format/gguf_writer.hpp"
#include "shaders/op_case.hpp"

namespace pumice::test {
namespace {

struct Tensor {
  std::string name;
  std::vector<uint64_t> dims;
};

std::vector<Tensor> tensors_of(const SyntheticModel& s) {
  const uint64_t head_dim = s.n_embd / s.n_heads;
  std::vector<Tensor> tensors{{"token_embd.weight", {s.n_embd, s.n_vocab}},
                              {"output_norm.weight", {s.n_embd}},
                              {"output.weight", {s.n_embd, s.n_vocab}}};
  for (uint32_t layer = 0; layer < s.n_layers; ++layer) {
    const std::string prefix = "blk." + std::to_string(layer) + ".";
    const uint64_t q_dim = s.n_heads * head_dim;
    const uint64_t kv_dim = s.n_kv_heads * head_dim;
    tensors.insert(tensors.end(), {{prefix + "attn_norm.weight", {s.n_embd}},
                                   {prefix + "attn_q.weight", {s.n_embd, q_dim}},
                                   {prefix + "attn_k.weight", {s.n_embd, kv_dim}},
                                   {prefix + "attn_v.weight", {s.n_embd, kv_dim}},
                                   {prefix + "attn_output.weight", {q_dim, s.n_embd}},
                                   {prefix + "ffn_norm.weight", {s.n_embd}},
                                   {prefix + "ffn_gate.weight", {s.n_embd, s.n_ff}},
                                   {prefix + "ffn_up.weight", {s.n_embd, s.n_ff}},
                                   {prefix + "ffn_down.weight", {s.n_ff, s.n_embd}}});
  }
  return tensors;
}

/// Norms near one; matrices scaled so that activations keep their size, and attention has contrast.
std::vector<float> values_of(const Tensor& tensor, uint32_t seed) {
  if (tensor.dims.size() == 1) {
    std::vector<float> values = ops::OpBed::normal_floats(tensor.dims[0], seed, 0.1f);
    for (float& value : values) value += 1;
    return values;
  }
  const float scale = 1.5f / std::sqrt(static_cast<float>(tensor.dims[0]));
  return ops::OpBed::normal_floats(tensor.dims[0] * tensor.dims[1], seed, scale);
}

Status write(const SyntheticModel& s, const std::filesystem::path& path) {
  GgufHeader header;
  header.set("general.architecture", "llama");
  header.set("llama.block_count", s.n_layers);
  header.set("llama.embedding_length", s.n_embd);
  header.set("llama.feed_forward_length", s.n_ff);
  header.set("llama.attention.head_count", s.n_heads);
  header.set("llama.attention.head_count_kv", s.n_kv_heads);
  header.set("llama.context_length", s.context_length);
  header.set("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  const std::vector<Tensor> tensors = tensors_of(s);
  for (const Tensor& tensor : tensors) {
    header.add_tensor(tensor.name, weight_type("F32"), tensor.dims);
  }
  PUMICE_TRY(GgufWriter writer, GgufWriter::create(path, std::move(header)));
  uint32_t seed = s.seed * 1000;
  for (const Tensor& tensor : tensors) {
    const std::vector<float> values = values_of(tensor, ++seed);
    PUMICE_TRY_STATUS(writer.write(std::as_bytes(std::span(values))));
  }
  return writer.finish();
}

}  // namespace

TemporaryFile write_synthetic_model(const SyntheticModel& shape) {
  static int counter = 0;
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() /
      ("pumice-test-" + std::to_string(getpid()) + "-" + std::to_string(counter++) + ".gguf");
  const Status status = write(shape, path);
  EXPECT_TRUE(status.ok()) << status.error().message;
  return TemporaryFile(path);
}

}  // namespace pumice::test
