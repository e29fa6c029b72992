// What products of few rows do besides (the rules "norm" and "activation") changes rounding only, with the
// kernels that GPUs take: the device is planned as one.
#include <algorithm>

#include "tests/engine/arithmetic.hpp"

namespace pumice {
namespace {

constexpr uint32_t kFewTokens = 24;

class FewRows : public test::EngineTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    if (IsSkipped()) return;
    const auto device = test::GpuEnvironment::open_as_gpu();
    ASSERT_TRUE(device.ok()) << device.error().message;
    on_device_ = std::make_unique<OnDevice>(*device);
    model_ = load_family(GetParam());
    if (model_ != nullptr) tokens_ = random_tokens(*model_, kFewTokens, 3);
  }
  void TearDown() override {
    model_.reset();
    on_device_.reset();
  }

  std::vector<float> logits_of(const FusionRules& rules, uint32_t rows, bool invariant = false) {
    return logits(model_, tokens_,
                  {.kv_type = KvType::kF32,
                   .math = ops::Math::kF32,
                   .fusion = rules,
                   .chunk_tokens = rows,
                   .invariant = invariant});
  }

  std::unique_ptr<OnDevice> on_device_;
  std::shared_ptr<const Model> model_;
  std::vector<TokenId> tokens_;
};

TEST_P(FewRows, AreComputedAlikeWhateverProductsDoBesides) {
  FusionRules apart;
  apart.set(FusionRule::kNorm, false);
  apart.set(FusionRule::kActivation, false);
  const std::vector<float> plain = logits_of(apart, kFewTokens);
  for (const uint32_t rows : {1u, 2u, 4u, 8u}) {
    EXPECT_LE(test::nmse(logits_of({}, rows), plain), test::kF32Arithmetic.bound) << rows;
  }
  // Norms are shared at all where they are of products' sums: their rounding differs. Gates of inputs as
  // short as these models' are added up in the same order.
  constexpr std::string_view kOthers[] = {"gemma2", "gptneox", "granite"};
  const bool shares = std::ranges::find(kOthers, GetParam()) == std::end(kOthers);
  EXPECT_EQ(logits_of({}, 1) != logits_of(apart, 1), shares);
  EXPECT_EQ(logits_of({}, 3, true), logits_of(apart, 3, true)) << "invariant: by gemm alone";
}

std::string few_rows_name(const ::testing::TestParamInfo<const char*>& given) {
  return given.param;
}

INSTANTIATE_TEST_SUITE_P(Families, FewRows,
                         ::testing::Values("llama", "qwen2", "qwen3", "gemma", "gemma2", "gptneox",
                                           "phi3", "granite"),
                         few_rows_name);

}  // namespace
}  // namespace pumice
