// Two engines on two threads share a device, its pipelines and a model's weights, and each says
// what it says alone. ThreadSanitizer (the matrix's row tsan) sees here what a lock does not cover.
#include <thread>

#include "shaders/spirv.hpp"
#include "tests/engine/engine_fixture.hpp"
#include "tests/engine/synthetic_model.hpp"

namespace pumice {
namespace {

class Sharing : public test::EngineTest {
 protected:
  /// What a new engine adds to three prompts, which differ by `seed`.
  static std::vector<TokenId> say(const std::shared_ptr<const Model>& model, uint32_t seed) {
    const auto engine = make_engine(model, {.context_tokens = 128, .greedy_only = true});
    std::vector<TokenId> said;
    for (uint32_t round = 0; engine && round < 3; ++round) {
      std::vector<TokenId> prompt;
      for (uint32_t i = 0; i < 24; ++i) {
        prompt.push_back(static_cast<TokenId>((i * seed + round) % 96));
      }
      const std::vector<TokenId> tokens = greedy(*engine, prompt, 16);
      said.insert(said.end(), tokens.begin(), tokens.end());
    }
    return said;
  }
};

TEST_F(Sharing, EnginesOnThreadsOfTheirOwnSayWhatTheySayAlone) {
  const test::TemporaryFile file = test::write_synthetic_model({});
  std::vector<TokenId> together[2];
  {
    // Loaded on one thread, used on another, with pipelines that nobody has compiled yet.
    const std::shared_ptr<const Model> model = load(file.path());
    std::vector<std::jthread> threads;
    for (uint32_t i = 0; i < 2; ++i) {
      threads.emplace_back([&, i] { together[i] = say(model, 5 + i); });
    }
    const std::shared_ptr<const Model> meanwhile = load(file.path());
    EXPECT_NE(meanwhile, nullptr);
  }
  const std::shared_ptr<const Model> model = load(file.path());
  for (uint32_t i = 0; i < 2; ++i) {
    EXPECT_EQ(together[i].size(), 48u);
    EXPECT_EQ(together[i], say(model, 5 + i)) << "engine " << i;
  }
}

}  // namespace
}  // namespace pumice
