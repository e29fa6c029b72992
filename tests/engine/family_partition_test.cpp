// Partitioning is invisible in every family: windows, soft caps, norms of heads, biases, experts.
// Fusion rules change nothing but rounding.
#include <algorithm>
#include <map>

#include "tests/engine/arithmetic.hpp"

namespace pumice {
namespace {

constexpr double kBound = test::kF32Arithmetic.bound;
constexpr uint32_t kTokens = 129;
constexpr uint32_t kChunks[] = {1, 16, 33, 128};
constexpr uint32_t kSplitChunks[] = {15, 17, 64};  // where contexts are split at 16 keys

class FamilyPartition : public test::EngineTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    if (IsSkipped()) return;
    model_ = load_family(GetParam());
    if (model_ != nullptr) tokens_ = random_tokens(*model_, kTokens, 7);
  }
  void TearDown() override { model_.reset(); }

  std::vector<float> logits_of(EngineOptions options) {
    options.kv_type = KvType::kF32;
    options.math = ops::Math::kF32;
    return logits(model_, tokens_, options);
  }

  /// Of so many tokens that were read: with recurrences up to where their state was kept.
  uint32_t found(uint32_t shared) const {
    const bool recurrent =
        std::ranges::any_of(model_->program.state_groups, &StateGroup::recurrent);
    const uint32_t block_tokens = state_layout(model_->program, KvType::kF32).block_tokens;
    if (recurrent) shared = shared / block_tokens * block_tokens;
    return std::min(shared, kTokens - 1);
  }

  std::shared_ptr<const Model> model_;
  std::vector<TokenId> tokens_;
};

TEST_P(FamilyPartition, LogitsDoNotDependOnTheChunk) {
  const std::vector<float> whole = logits_of({});
  for (const uint32_t chunk : kChunks) {
    EXPECT_LE(test::nmse(logits_of({.chunk_tokens = chunk}), whole), kBound)
        << "chunks of " << chunk;
  }
  for (const uint32_t chunk : kSplitChunks) {
    EXPECT_LE(test::nmse(logits_of({.chunk_tokens = chunk, .split_tokens = 16}), whole), kBound)
        << "chunks of " << chunk << ", split";
  }
}

TEST_P(FamilyPartition, InvariantMeansBitForBit) {
  const std::vector<float> whole = logits_of({.invariant = true, .split_tokens = 16});
  for (const uint32_t chunk : {1u, 17u, 64u}) {
    EXPECT_EQ(logits_of({.chunk_tokens = chunk, .invariant = true, .split_tokens = 16}), whole)
        << "chunks of " << chunk;
  }
}

TEST_P(FamilyPartition, WhatTheCacheHoldsIsWhatIsComputed) {
  const std::vector<float> whole = logits_of({});
  const size_t n_vocab = model_->program.n_vocab;
  for (const uint32_t shared : {5u, 16u, 40u, 64u, 100u, 128u}) {
    const auto engine = make_engine(model_, {.kv_type = KvType::kF32,
                                             .math = ops::Math::kF32,
                                             .context_tokens = 2 * kTokens,
                                             .prompt_logits = true,
                                             .greedy_only = true});
    std::vector<TokenId> other(tokens_.begin(), tokens_.begin() + shared);
    other.push_back((tokens_[shared] + 1) % model_->program.n_vocab);
    greedy(*engine, other, 3);
    std::vector<float> got;
    std::vector<float> expected;
    const auto keep = [&](uint32_t position, std::span<const float> row) {
      if (position >= kTokens) return;
      got.insert(got.end(), row.begin(), row.end());
      const auto first = whole.begin() + static_cast<ptrdiff_t>(position * n_vocab);
      expected.insert(expected.end(), first, first + static_cast<ptrdiff_t>(n_vocab));
    };
    ASSERT_TRUE(engine
                    ->submit({.prompt = tokens_,
                              .max_new_tokens = 1,
                              .on_logits = keep,
                              .logits = GenerationRequest::Logits::kComputed})
                    .ok());
    std::optional<RequestReport> report;
    while (!engine->idle()) {
      for (const StepEvent& event : step(*engine)) {
        if (event.report) report = event.report;
      }
    }
    ASSERT_TRUE(report);
    EXPECT_EQ(report->cache.cached_tokens, found(shared));
    EXPECT_EQ(got.size(), (kTokens - report->cache.cached_tokens) * n_vocab);
    EXPECT_LE(test::nmse(got, expected), kBound) << shared << " tokens shared";
  }
}

TEST_P(FamilyPartition, BatchMatesChangeNothing) {
  const auto engine = make_engine(model_, {.kv_type = KvType::kF32,
                                           .math = ops::Math::kF32,
                                           .context_tokens = 200,
                                           .n_sequences = 3,
                                           .token_budget = 48,
                                           .chunk_tokens = 24,
                                           .prefix_cache = false,
                                           .prompt_logits = true,
                                           .greedy_only = true});
  std::map<size_t, std::vector<float>> together;
  for (const size_t n : {size_t{kTokens}, size_t{37}, size_t{5}}) {
    const auto append = [&together, n](uint32_t, std::span<const float> row) {
      together[n].insert(together[n].end(), row.begin(), row.end());
    };
    const std::vector<TokenId> prompt(tokens_.begin(), tokens_.begin() + static_cast<ptrdiff_t>(n));
    ASSERT_TRUE(engine->submit({.prompt = prompt, .max_new_tokens = 20, .on_logits = append}).ok());
  }
  while (!engine->idle()) ASSERT_TRUE(engine->step().ok());
  const std::vector<float> whole = logits_of({});
  for (const auto& [n, got] : together) {
    const auto size = static_cast<ptrdiff_t>(n * model_->program.n_vocab);
    EXPECT_LE(test::nmse(got, {whole.begin(), whole.begin() + size}), kBound) << n << " tokens";
  }
}

TEST_P(FamilyPartition, FusionRulesChangeRoundingOnly) {
  const std::vector<float> fused = logits_of({});
  for (size_t i = 0; i < kFusionRuleCount; ++i) {
    FusionRules rules;
    rules.set(static_cast<FusionRule>(i), false);
    EXPECT_LE(test::nmse(logits_of({.fusion = rules}), fused), kBound) << rules.text();
  }
  EXPECT_LE(test::nmse(logits_of({.fusion = FusionRules::none()}), fused), kBound);
}

/// Windows give back what is behind them, so that far fewer pages than the context has are enough.
class Windows : public FamilyPartition {};

TEST_P(Windows, BoundTheMemoryOfAContext) {
  constexpr uint32_t kLong = 500;
  while (tokens_.size() < kLong) tokens_.push_back(tokens_[tokens_.size() - kTokens]);
  const StateLayout layout = state_layout(model_->program, KvType::kF32);
  const uint64_t all = layout.kinds.size() * ((kLong + 16) / kKvBlockTokens + 1);
  const std::vector<float> whole = logits_of({.kv_blocks = 64});
  const EngineOptions options{.kv_type = KvType::kF32,
                              .math = ops::Math::kF32,
                              .context_tokens = kLong + 16,
                              .token_budget = 32,
                              .chunk_tokens = 32,
                              .prompt_logits = true,
                              .greedy_only = true};
  const auto engine = make_engine(model_, options);
  EXPECT_LT(engine->scheduler().cache().n_pages(), all * 3 / 4);
  EXPECT_LE(test::nmse(logits(*engine, tokens_), whole), kBound);
  // What another prompt had and was given back is found, or computed again.
  for (const uint32_t shared : {20u, 100u, 300u, 499u}) {
    std::vector<TokenId> other(tokens_.begin(), tokens_.begin() + shared);
    greedy(*engine, other, 4);
    const auto reused = make_engine(model_, options);
    EXPECT_EQ(greedy(*engine, tokens_, 12), greedy(*reused, tokens_, 12)) << shared;
  }
}

std::string family_name(const ::testing::TestParamInfo<const char*>& given) {
  std::string name = given.param;
  std::ranges::replace(name, '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Families, Windows, ::testing::Values("gemma2", "gemma3"), family_name);

// Other hybrids are test_recurrent's.
INSTANTIATE_TEST_SUITE_P(Families, FamilyPartition,
                         ::testing::Values("llama", "qwen2", "qwen3", "gemma", "gemma2", "gemma3",
                                           "gpt2", "gptneox", "stablelm", "command-r", "granite",
                                           "phi3", "mixtral", "hunyuan-dense", "gemma4", "gpt-oss",
                                           "bailingmoe2", "mistral4", "nemotron-h", "qwen35moe",
                                           "kimi-linear"),
                         family_name);

}  // namespace
}  // namespace pumice
