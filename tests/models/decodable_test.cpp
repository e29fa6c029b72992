// What the decoder can run is told by a program's operations; what it lacks is named.
#include "models/decodable.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <stdexcept>

#include "models/families.hpp"
#include "tests/shared_data.hpp"

namespace pumice {
namespace {

/// The program of a file of the shared families.
Result<Program> program_of(const std::string& family) {
  PUMICE_TRY(const ModelSource source,
             ModelSource::open(test::shared_path("reference/families/" + family + ".gguf")));
  return build_program(source);
}

TEST(Decodable, ALlamaIsItsConfiguration) {
  const SyntheticModel made = SyntheticModel::create({.n_layers = 3}, {}).value();
  const Program program = build_program(ModelSource::synthetic(made).value()).value();
  const Result<ModelDescription> model = decodable(program);
  ASSERT_TRUE(model.ok()) << model.error().message;
  const ModelConfig& config = model->config;
  EXPECT_EQ(config.architecture, "llama");
  EXPECT_EQ(config.n_layers, 3u);
  EXPECT_EQ(config.n_embd, 256u);
  EXPECT_EQ(config.n_heads, 4u);
  EXPECT_EQ(config.n_kv_heads, 2u);
  EXPECT_EQ(config.head_dim, 64u);
  EXPECT_EQ(config.n_ff, 512u);
  EXPECT_EQ(config.n_vocab, 512u);
  EXPECT_EQ(config.context_length, 2048u);
  EXPECT_FLOAT_EQ(config.norm_eps, 1e-5f);
  EXPECT_FALSE(config.rope_halves);
  EXPECT_EQ(config.rope.dims, 64u);
}

TEST(Decodable, WhatNoKernelComputesIsNamed) {
  PUMICE_REQUIRE_SHARED(folder, "reference/families");
  const std::map<std::string, std::string> lacking = {
      {"gemma2", "scale, attention with a window, gelu_tanh, attention with a soft cap, soft_cap"},
      {"gemma3", "scale, a norm of each head, attention with a window, gelu_tanh"},
      {"mixtral", "a mixture-of-experts"},
      {"phi3", "parts of a fused matrix"},
      {"qwen2", "a bias"},
      {"qwen3", "a norm of each head"},
  };
  for (const auto& [family, names] : lacking) {
    const Program program = program_of(family).value();
    const Result<ModelDescription> model = decodable(program);
    ASSERT_FALSE(model.ok()) << family;
    EXPECT_EQ(model.error().code, ErrorCode::kBadFile);
    EXPECT_EQ(model.error().message,
              fmt::format("architecture {}: Pumice can describe and check this model, not run it "
                          "yet: there is no kernel for {}",
                          program.architecture, names));
  }
}

/// The program of a model of two layers, changed.
Result<ModelDescription> decodable_after(const std::function<void(Program&)>& change) {
  const SyntheticModel made = SyntheticModel::create({.n_layers = 2}, {}).value();
  Program program = build_program(ModelSource::synthetic(made).value()).value();
  change(program);
  return decodable(program);
}

/// The n-th operation of a kind.
template <typename T>
T& nth(Program& program, size_t n) {
  for (Op& op : program.ops) {
    T* const found = std::get_if<T>(&op.what);
    if (found != nullptr && n-- == 0) return *found;
  }
  throw std::out_of_range("no such operation");
}

TEST(Decodable, OperationsMustBePutTogetherAsTheDecoders) {
  EXPECT_TRUE(decodable_after([](Program&) {}).ok());
  const std::pair<const char*, std::function<void(Program&)>> changes[] = {
      {"an epsilon of its own", [](Program& p) { nth<op::RmsNorm>(p, 3).eps *= 2; }},
      {"another epsilon at the end", [](Program& p) { nth<op::RmsNorm>(p, 4).eps *= 2; }},
      {"other pairs", [](Program& p) { nth<op::Rope>(p, 1).halves = true; }},
      {"other pairs in a layer",
       [](Program& p) { nth<op::Rope>(p, 2).halves = nth<op::Rope>(p, 3).halves = true; }},
      {"v instead of k",
       [](Program& p) { std::swap(nth<op::Append>(p, 0).k, nth<op::Append>(p, 0).v); }},
      {"another slot", [](Program& p) { nth<op::Append>(p, 1).slot = 0; }},
      {"another layer's state",
       [](Program& p) { nth<op::Attention>(p, 1).kv = nth<op::Attention>(p, 0).kv; }},
      {"no residual", [](Program& p) { nth<op::Add>(p, 1).a = nth<op::Add>(p, 1).b; }},
      {"up for gate", [](Program& p) { std::swap(nth<op::Mul>(p, 0).a, nth<op::Mul>(p, 0).b); }},
      {"feed-forward beside attention",
       [](Program& p) { nth<op::RmsNorm>(p, 1).x = nth<op::RmsNorm>(p, 0).x; }},
      {"another weight",
       [](Program& p) { nth<op::Linear>(p, 1).weight = nth<op::Linear>(p, 2).weight; }},
      {"no norm at the end",
       [](Program& p) { nth<op::Linear>(p, 14).x = nth<op::RmsNorm>(p, 4).x; }},
  };
  for (const auto& [name, change] : changes) {
    const Result<ModelDescription> model = decodable_after(change);
    ASSERT_FALSE(model.ok()) << name;
    EXPECT_NE(model.error().message.find("put together otherwise"), std::string::npos)
        << name << ": " << model.error().message;
  }
  EXPECT_NE(decodable_after([](Program& p) { nth<op::Attention>(p, 1).scale *= 2; })
                .error()
                .message.find("attention with a scale of its own"),
            std::string::npos);
}

}  // namespace
}  // namespace pumice
