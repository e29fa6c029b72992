// Engines on a small random model.
#pragma once

#include <random>
#include <vector>

#include "tests/engine/engine_fixture.hpp"
#include "tests/engine/synthetic_model.hpp"

namespace pumice::test {

class SyntheticEngineTest : public EngineTest {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    if (IsSkipped()) return;
    const TemporaryFile file = write_synthetic_model({});
    model_ = load(file.path());
    ASSERT_NE(model_, nullptr);
  }
  void TearDown() override { model_.reset(); }

  /// Random tokens of the model's vocabulary.
  static std::vector<TokenId> tokens(size_t n, uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<TokenId> result(n);
    for (TokenId& token : result) token = static_cast<TokenId>(random() % 96);
    return result;
  }

  /// Sampling that reads all that is kept of a sequence.
  static SamplerOptions with_penalties(uint64_t seed) {
    return {.temperature = 1.0f,
            .top_k = 50,
            .repeat_penalty = 1.2f,
            .frequency_penalty = 0.2f,
            .seed = seed};
  }

  std::shared_ptr<const Model> model_;
};

}  // namespace pumice::test
