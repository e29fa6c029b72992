// Partitioning is invisible: chunks, batch mates and the order of independent commands never change
// what a request says; every barrier is needed.
#include <random>

#include "format/gguf_writer.hpp"
#include "tests/engine/arithmetic.hpp"

namespace pumice {
namespace {

constexpr double kBound = test::kF32Arithmetic.bound;

class Invariance : public test::EngineTest {
 protected:
  /// Random tokens of a synthetic model's vocabulary.
  static std::vector<TokenId> tokens(size_t n, uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<TokenId> result(n);
    for (TokenId& token : result) token = static_cast<TokenId>(random() % 96);
    return result;
  }
  static std::shared_ptr<const Model> synthetic(const test::SyntheticModel& shape) {
    const test::TemporaryFile file = test::write_synthetic_model(shape);
    return load(file.path());
  }
};

/// In each arithmetic, at its bound.
class Partitioning : public Invariance, public ::testing::WithParamInterface<test::Arithmetic> {
 protected:
  void SetUp() override {
    Invariance::SetUp();
    if (IsSkipped()) return;
    model_ = synthetic({.type = &weight_type(GetParam().weight_type)});
    const std::string obstacle = test::arithmetic_obstacle(pipelines_, model_, GetParam());
    if (!obstacle.empty()) GTEST_SKIP() << obstacle;
  }
  void TearDown() override { model_.reset(); }

  std::vector<float> logits_of(const std::vector<TokenId>& prompt, EngineOptions options) {
    options.kv_type = KvType::kF32;
    options.math = GetParam().math;
    return logits(model_, prompt, options);
  }
  void expect_close(const std::vector<float>& got, const std::vector<float>& expected,
                    const std::string& what) {
    const double error = test::nmse(got, expected);
    EXPECT_LE(error, GetParam().bound) << what;
    worst_ = std::max(worst_, error);
    RecordProperty("worst_nmse", fmt::format("{:.2e}", worst_));
  }

  std::shared_ptr<const Model> model_;
  double worst_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Arithmetics, Partitioning,
                         ::testing::Values(test::kF32Arithmetic, test::kF16Arithmetic,
                                           test::kI8Arithmetic),
                         [](const auto& given) { return test::arithmetic_name(given.param); });

TEST_P(Partitioning, LogitsDoNotDependOnTheChunk) {
  constexpr uint32_t kEdges[] = {15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129};
  const auto all_tokens = tokens(129, 5);
  for (const uint32_t length : kEdges) {
    const std::vector<TokenId> prompt(all_tokens.begin(), all_tokens.begin() + length);
    const auto whole = logits_of(prompt, {});
    for (const uint32_t chunk : kEdges) {
      if (chunk >= length) continue;
      expect_close(logits_of(prompt, {.chunk_tokens = chunk}), whole,
                   fmt::format("{} tokens in chunks of {}", length, chunk));
    }
  }
}

TEST_F(Invariance, PositionsOfALongPromptNeverRestart) {
  const auto model = synthetic({.n_layers = 1, .context_length = 8192});
  const auto prompt = tokens(4200, 6);
  const auto whole =
      logits(model, prompt, {.kv_type = KvType::kF32, .token_budget = 4200, .chunk_tokens = 4200});
  for (const uint32_t chunk : {512u, 1000u}) {
    const auto chunked = logits(model, prompt, {.kv_type = KvType::kF32, .chunk_tokens = chunk});
    EXPECT_LE(test::nmse(chunked, whole), kBound) << "chunks of " << chunk;
  }
  // The same tokens at other positions must not give the same logits.
  const std::vector<TokenId> tail(prompt.end() - 100, prompt.end());
  const auto alone = logits(model, tail, {.kv_type = KvType::kF32});
  const std::vector<float> whole_tail(whole.end() - static_cast<ptrdiff_t>(alone.size()),
                                      whole.end());
  EXPECT_GT(test::nmse(alone, whole_tail), 1e-3);
}

TEST_P(Partitioning, BatchMatesOfOtherLengthsChangeNothing) {
  const EngineOptions options{.kv_type = KvType::kF32,
                              .math = GetParam().math,
                              .context_tokens = 200,
                              .n_sequences = 3,
                              .token_budget = 48,
                              .chunk_tokens = 24,
                              .prompt_logits = true,
                              .greedy_only = true};
  const auto engine = make_engine(model_, options);
  const std::vector<TokenId> prompts[] = {tokens(100, 1), tokens(37, 2), tokens(5, 3)};
  std::vector<std::vector<float>> together(3);
  for (size_t i = 0; i < 3; ++i) {
    const auto append = [&together, i](uint32_t, std::span<const float> row) {
      together[i].insert(together[i].end(), row.begin(), row.end());
    };
    ASSERT_TRUE(
        engine->submit({.prompt = prompts[i], .max_new_tokens = 20, .on_logits = append}).ok());
  }
  while (!engine->idle()) ASSERT_TRUE(engine->step().ok());
  for (size_t i = 0; i < 3; ++i) {
    expect_close(together[i], logits_of(prompts[i], {}), fmt::format("request {}", i));
  }
}

TEST_F(Invariance, TiledSingleRowAndSplitPathsReallyRun) {
  const auto model = synthetic({});
  const auto engine =
      make_engine(model, {.context_tokens = 200, .split_tokens = 32, .greedy_only = true});
  greedy(*engine, tokens(100, 4), 5);
  const auto ran = [&](std::string_view prefix) {
    return std::any_of(engine->variants().begin(), engine->variants().end(),
                       [&](const std::string& label) { return label.starts_with(prefix); });
  };
  for (const char* label :
       {"embedding.", "rms_norm", "gemm.", "gemv.", "rope_kv.f16", "gated_activation",
        "flash_attention.tile.f16", "flash_attention.row.f16", "attention_reduce", "sampling"}) {
    EXPECT_TRUE(ran(label)) << label;
  }
}

TEST_P(Partitioning, SplittingTheContextChangesNothing) {
  const auto prompt = tokens(100, 4);
  std::vector<std::vector<float>> results;
  for (const uint32_t split : {16u, 48u, 256u}) {
    // Chunks of one and three tokens: rows and tiles that are split.
    for (const uint32_t chunk : {1u, 3u}) {
      results.push_back(logits_of(prompt, {.chunk_tokens = chunk, .split_tokens = split}));
      expect_close(results.back(), results.front(), fmt::format("split {}", split));
    }
  }
}

/// The logits of a step with a tile of one request and, of another, a single row whose context is
/// split; both requests' last layers are looked at.
class Barriers : public Invariance {
 protected:
  static constexpr uint32_t kChunk = 48;

  std::vector<float> mixed_step(Engine& engine, const vk::RecorderOptions& options) {
    std::vector<float> result;
    const auto append = [&](uint32_t, std::span<const float> row) {
      result.insert(result.end(), row.begin(), row.end());
    };
    engine.set_hooks({});
    EXPECT_TRUE(
        engine.submit({.prompt = tokens(kChunk + 1, 1), .max_new_tokens = 1, .on_logits = append})
            .ok());
    step(engine);  // all but the last token
    result.clear();
    EXPECT_TRUE(
        engine.submit({.prompt = tokens(23, 2), .max_new_tokens = 1, .on_logits = append}).ok());
    engine.set_hooks({.recorder = options});
    float sampled = 0;
    for (const StepEvent& event : step(engine))
      sampled = static_cast<float>(*event.token) + 1000 * sampled;
    result.push_back(sampled);
    EXPECT_TRUE(engine.idle());
    return result;
  }
};

TEST_F(Barriers, ReversingWhatNoneSeparatesGivesTheSameBitsAndDroppingAnyShows) {
  if (test::validation_requested()) GTEST_SKIP() << "the layers would rightly object";
  const auto model = synthetic({.n_layers = 2});
  const auto engine = make_engine(model, {.kv_type = KvType::kF32,
                                          .context_tokens = 64,
                                          .n_sequences = 2,
                                          .chunk_tokens = kChunk,
                                          .prompt_logits = true,
                                          .split_tokens = 16,
                                          .greedy_only = true});
  const auto baseline = mixed_step(*engine, {});
  EXPECT_EQ(mixed_step(*engine, {}), baseline) << "a step is not deterministic";
  EXPECT_EQ(mixed_step(*engine, {.reverse_unordered = true}), baseline);
  EXPECT_EQ(mixed_step(*engine, {.segment = {.bytes = 1}}), baseline) << "a command a segment";
  EXPECT_EQ(mixed_step(*engine, {.reverse_unordered = true, .segment = {.flops = 1 << 20}}),
            baseline);
  const size_t n_barriers = engine->last_barrier_count();
  EXPECT_GE(n_barriers, 2 * 9u);
  for (size_t dropped = 0; dropped < n_barriers; ++dropped) {
    EXPECT_TRUE(mixed_step(*engine, {.reverse_unordered = true, .drop_barrier = dropped}) !=
                baseline)
        << "barrier " << dropped << " of " << n_barriers << " is not needed";
  }
}

}  // namespace
}  // namespace pumice
