// Evidence: right kernels pass it, a wrong one leaves a benchmark without a score.
#include "bench/evidence.hpp"

#include <algorithm>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "bench/model_bench.hpp"
#include "shaders/spirv.hpp"
#include "tests/gpu_fixture.hpp"
#include "tests/shaders/wrong_kernel.hpp"

namespace pumice::bench {
namespace {

class EvidenceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    PUMICE_REQUIRE_DEVICE(device);
    pipelines_ = library(device);
    // Wide enough for every path of attention and for a fallback type, and of several layers.
    const SyntheticModel model =
        SyntheticModel::create({.n_layers = 3, .n_vocab = 700, .tied = true},
                               {.type = &weight_type("Q4_K")})
            .value();
    source_ = ModelSource::synthetic(model).value();
    Result<std::shared_ptr<const Model>> loaded = Model::load(device, *source_);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    model_ = *loaded;
  }
  static std::shared_ptr<vk::PipelineLibrary> library(const std::shared_ptr<vk::Device>& device) {
    return std::make_shared<vk::PipelineLibrary>(device, std::filesystem::path(), spirv_hash());
  }
  Evidence gather(const EvidenceOptions& options = {}) {
    Result<Evidence> evidence = gather_evidence(pipelines_, model_, *source_, options);
    EXPECT_TRUE(evidence.ok()) << evidence.error().message;
    return evidence.ok() ? *evidence : Evidence{};
  }

  std::shared_ptr<vk::PipelineLibrary> pipelines_;
  std::optional<ModelSource> source_;
  std::shared_ptr<const Model> model_;
};

TEST_F(EvidenceTest, OfRightKernelsPasses) {
  for (const KvType kv_type : {KvType::kF32, KvType::kF16}) {
    for (const ops::Math math : {ops::Math::kF32, ops::Math::kAuto}) {
      const Evidence evidence = gather({.kv_type = kv_type, .math = math});
      EXPECT_TRUE(verdict(evidence).ok()) << verdict(evidence).error().message;
      EXPECT_EQ(evidence.layers_checked, 3u);
      ASSERT_EQ(evidence.passes.size(), 3u);
      if (math == ops::Math::kF32) {
        EXPECT_EQ(evidence.bound, kv_type == KvType::kF32 ? 1e-9 : 1.001e-6);
      }
    }
  }
}

TEST_F(EvidenceTest, OfEveryKindOfStatePasses) {
  for (const char* preset : {"hybrid-tiny:q8_0", "moe-tiny:q8_0"}) {
    source_ = ModelSource::synthetic(SyntheticModel::parse(preset).value()).value();
    model_ = Model::load(pipelines_->device(), *source_).value();
    const Evidence evidence = gather();
    ASSERT_EQ(evidence.passes.size(), 3u) << preset;
    EXPECT_TRUE(verdict(evidence).ok()) << preset << ": " << verdict(evidence).error().message;
  }
}

/// Of so many routers some find two experts nearly as good, and F16 keys make one the better.
TEST_F(EvidenceTest, IsOfTheExpertsThatTheReferenceTakes) {
  const SyntheticModel model = SyntheticModel::create({.n_layers = 12,
                                                       .n_embd = 256,
                                                       .n_heads = 4,
                                                       .n_kv_heads = 2,
                                                       .n_ff = 32,
                                                       .n_vocab = 512,
                                                       .n_experts = 128,
                                                       .n_experts_used = 8,
                                                       .architecture = "qwen3moe"},
                                                      {.type = &weight_type("Q8_0")})
                                   .value();
  source_ = ModelSource::synthetic(model).value();
  model_ = Model::load(pipelines_->device(), *source_).value();
  const Evidence evidence = gather();
  EXPECT_TRUE(verdict(evidence).ok()) << verdict(evidence).error().message;
}

TEST(LogitsDigest, IsOfEveryLogitAndOfNoRoundingError) {
  const std::vector<float> logits(4096, 1.5f);
  for (const size_t changed : {size_t{0}, size_t{1}, logits.size() / 2, logits.size() - 1}) {
    std::vector<float> others = logits;
    others[changed] += 0.01f;
    EXPECT_NE(logits_digest(others), logits_digest(logits)) << changed;
    others[changed] = 1.5f + 1e-5f;
    EXPECT_EQ(logits_digest(others), logits_digest(logits)) << changed;
  }
}

TEST_F(EvidenceTest, IsTheSameTwice) {
  const Evidence one = gather();
  const Evidence two = gather();
  ASSERT_EQ(one.passes.size(), 3u);
  for (size_t i = 0; i < one.passes.size(); ++i) {
    EXPECT_EQ(one.passes[i].digest, two.passes[i].digest);
    const std::span<const TokenId> top1 = one.passes[0].top1;
    EXPECT_TRUE(std::ranges::equal(one.passes[i].top1, top1.last(one.passes[i].n_tokens)));
  }
}

TEST_F(EvidenceTest, OfTheFirstLayersIsAboutTheModelOfThose) {
  const Evidence evidence = gather({.seconds = 0});
  EXPECT_EQ(evidence.layers_checked, 1u);
  EXPECT_EQ(evidence.n_layers, 3u);
  EXPECT_TRUE(verdict(evidence).ok()) << verdict(evidence).error().message;
  EXPECT_NE(describe(evidence).find("first 1 of 3 layers"), std::string::npos);
  EXPECT_NE(evidence.passes[0].digest, gather().passes[0].digest);
}

TEST_F(EvidenceTest, AWrongKernelOfAnyPassLeavesNoScore) {
  const Evidence right = gather();
  size_t n_wrong = 0;
  for (const std::string& kernel : right.variants) {
    const auto module = find_spirv(kernel);
    if (!module.ok()) continue;  // a label with a tile's size
    const std::vector<uint32_t> wrong = test::wrong_kernel(module->words);
    if (std::ranges::equal(wrong, module->words)) continue;  // has no fma
    if (kernel == "gated_activation") continue;              // has one for GELU only
    pipelines_ = library(pipelines_->device());
    pipelines_->override_module(kernel, wrong);
    const Evidence evidence = gather();
    ASSERT_FALSE(verdict(evidence).ok()) << kernel;
    EXPECT_EQ(verdict(evidence).error().code, ErrorCode::kSelfTestFailed);
    EXPECT_FALSE(to_json(evidence).at("passed").get<bool>());
    const auto make = [&](const TestGroup&) -> Result<std::unique_ptr<Engine>> {
      return verdict(evidence).error();
    };
    const ModelTest tests[] = {{.n_prompt = 16}, {.n_gen = 2}};
    const std::vector<ModelRow> rows = bench_models(tests, {.make_engine = make});
    EXPECT_EQ(pumice::bench::verdict(rows).error().code, ErrorCode::kSelfTestFailed);
    for (const ModelRow& row : rows) {
      const auto record = to_json(row, {.evidence = evidence});
      EXPECT_TRUE(record.at("samples_ts").empty());
      EXPECT_NE(record.at("error").get<std::string>().find("no score"), std::string::npos);
    }
    ++n_wrong;
  }
  EXPECT_GE(n_wrong, 3u);
}

TEST_F(EvidenceTest, NamesKernelsThatItDidNotSee) {
  const Evidence evidence = gather();
  std::set<std::string> measured = evidence.variants;
  EXPECT_TRUE(evidence.unchecked(measured).empty());
  measured.insert("gemm.imagined");
  EXPECT_EQ(evidence.unchecked(measured), std::set<std::string>{"gemm.imagined"});
}

}  // namespace
}  // namespace pumice::bench
