// Attention to latents in both its forms says the same: of many rows by the keys and values that
// latents stand for, of few by the latents.
#include <algorithm>
#include <map>
#include <vector>

#include "tests/engine/engine_fixture.hpp"
#include "tests/models/plain_transformer.hpp"

namespace pumice {
namespace {

constexpr double kRounding = 1e-11;

/// What a layer keeps may be rounded otherwise where numbers before it differ in their last bits.
double bound_of(KvType kept) {
  return kept == KvType::kF32 ? kRounding : kept == KvType::kF16 ? 1e-9 : 1e-7;
}

FusionRules absorbed() { return FusionRules::parse("-expand").value(); }

class ExpandedLatents : public test::EngineTest {
 protected:
  static std::vector<TokenId> tokens(size_t n, uint32_t n_vocab) {
    std::vector<TokenId> result(n);
    for (size_t i = 0; i < n; ++i) result[i] = static_cast<TokenId>(i * i * 31 % n_vocab);
    return result;
  }
  static std::shared_ptr<const Model> deepseek() {
    return load(test::shared_path("reference/families/deepseek2.gguf"));
  }
  static bool has_deepseek() {
    return std::filesystem::exists(test::shared_path("reference/families/deepseek2.gguf"));
  }

  /// Logits of a prompt, and how many times a piece of latents was expanded.
  struct Run {
    std::vector<float> logits;
    uint32_t n_pieces = 0;
    uint32_t n_attentions = 0;  ///< dispatches of heads' own keys
  };
  static Run run(const std::shared_ptr<const Model>& model, const std::vector<TokenId>& prompt,
                 EngineOptions options) {
    options.math = ops::Math::kF32;
    options.prompt_logits = true;
    options.prefix_cache = false;
    options.context_tokens = static_cast<uint32_t>(prompt.size()) + 16;
    options.token_budget = std::max(options.token_budget, options.chunk_tokens);
    const auto engine = make_engine(model, options);
    Run result;
    if (engine == nullptr) return result;
    engine->set_hooks({.observer = [&](const StepTrace&, const vk::RecordedWork& work) {
      for (const vk::CommandInfo& command : work.commands()) {
        result.n_pieces += command.label == "latent_heads.f32" ? 1 : 0;
        result.n_attentions += command.label == "flash_attention.tile.f32" ? 1 : 0;
      }
    }});
    result.logits = logits(*engine, prompt);
    return result;
  }
};

TEST_F(ExpandedLatents, SayWhatTheyDoUnexpandedInAnyTypeAndPieces) {
  if (!has_deepseek()) GTEST_SKIP() << "no shared data";
  const auto model = deepseek();
  ASSERT_NE(model, nullptr);
  // Longer than a piece of keys, in chunks that end within blocks.
  const auto prompt = tokens(1210, model->program.n_vocab);
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kQ8_0}) {
    const EngineOptions options{.kv_type = type, .chunk_tokens = 400};
    const Run expanded = run(model, prompt, options);
    EngineOptions other = options;
    other.fusion = absorbed();
    const Run plain = run(model, prompt, other);
    EXPECT_EQ(plain.n_pieces, 0u);
    EXPECT_EQ(expanded.n_pieces, 2 * (1 + 1 + 2u));  // of two layers, in three chunks
    EXPECT_LE(test::nmse(expanded.logits, plain.logits), bound_of(type)) << kv_type_name(type);
  }
}

TEST_F(ExpandedLatents, SayTheSameSomeHeadsAtATime) {
  if (!has_deepseek()) GTEST_SKIP() << "no shared data";
  vk::PlanOptions limits = pipelines_->device()->plan().limits;
  limits.slab_bytes = 320 << 10;  // 304 keys and values of two heads
  const auto device = test::GpuEnvironment::open(
      [&](const vk::DeviceSnapshot& snapshot) { return vk::plan_device(snapshot, limits); });
  ASSERT_TRUE(device.ok()) << device.error().message;
  const OnDevice on(*device);
  const auto model = deepseek();
  ASSERT_NE(model, nullptr);
  const auto prompt = tokens(288, model->program.n_vocab);
  const EngineOptions options{.kv_type = KvType::kF32, .token_budget = 64, .chunk_tokens = 64};
  const Run expanded = run(model, prompt, options);
  EngineOptions other = options;
  other.fusion = absorbed();
  // Of each chunk and layer, of which there are two, two of four heads at a time.
  EXPECT_GE(expanded.n_pieces, 2 * 2u);
  EXPECT_EQ(expanded.n_pieces % (2 * 2), 0u);
  EXPECT_LE(test::nmse(expanded.logits, run(model, prompt, other).logits), kRounding);
}

TEST_F(ExpandedLatents, OfBothMatricesInOneSayTheSame) {
  const auto forms = test::forms_without_a_file();
  const auto form = std::ranges::find(forms, "deepseek2_fused", &test::PlainForm::name);
  ASSERT_NE(form, forms.end());
  const test::PlainTransformer plain(*form);
  const auto file = plain.file();
  const auto model = Model::load(pipelines_->device(), file->file());
  ASSERT_TRUE(model.ok()) << model.error().message;
  const auto prompt = tokens(100, (*model)->program.n_vocab);
  const EngineOptions options{.kv_type = KvType::kF32, .chunk_tokens = 64};
  const Run expanded = run(*model, prompt, options);
  EXPECT_GT(expanded.n_pieces, 0u);
  const std::vector<double> exact = plain.logits(prompt);
  EXPECT_LE(test::nmse(expanded.logits, {exact.begin(), exact.end()}), kRounding);
}

TEST_F(ExpandedLatents, AreOfChunksWhileOtherRowsOfTheStepGoToTheLatents) {
  if (!has_deepseek()) GTEST_SKIP() << "no shared data";
  const auto model = deepseek();
  ASSERT_NE(model, nullptr);
  const auto first = tokens(20, model->program.n_vocab);
  const auto second = tokens(150, model->program.n_vocab);
  const auto alone = [&](const std::vector<TokenId>& prompt, uint32_t n) {
    const auto engine = make_engine(model, {.kv_type = KvType::kF32,
                                            .math = ops::Math::kF32,
                                            .fusion = absorbed(),
                                            .context_tokens = 256,
                                            .greedy_only = true});
    return greedy(*engine, prompt, n);
  };
  const auto engine = make_engine(model, {.kv_type = KvType::kF32,
                                          .math = ops::Math::kF32,
                                          .context_tokens = 256,
                                          .n_sequences = 3,
                                          .token_budget = 512,
                                          .chunk_tokens = 512,
                                          .prefix_cache = false,
                                          .greedy_only = true});
  ASSERT_NE(engine, nullptr);
  uint32_t n_mixed = 0;
  engine->set_hooks({.observer = [&](const StepTrace& trace, const vk::RecordedWork& work) {
    const bool expands = std::ranges::any_of(work.commands(), [](const vk::CommandInfo& command) {
      return command.label == "latent_heads.f32";
    });
    const bool absorbs = std::ranges::any_of(work.commands(), [](const vk::CommandInfo& command) {
      return command.label.starts_with("flash_attention.row");
    });
    n_mixed += expands && absorbs && trace.decode_rows == 1 ? 1 : 0;
  }});
  // One that decodes, and then two prompts of other lengths in one step beside it.
  std::map<RequestId, std::vector<TokenId>> texts;
  const auto submit = [&](const std::vector<TokenId>& prompt, uint32_t n) {
    return engine->submit({.prompt = prompt, .max_new_tokens = n}).value();
  };
  const auto take = [&] {
    for (const StepEvent& event : step(*engine)) {
      if (event.token) texts[event.request].push_back(*event.token);
    }
  };
  const RequestId decoding = submit(first, 12);
  for (int i = 0; i < 3; ++i) take();
  const std::vector<TokenId> third(second.begin(), second.begin() + 121);
  const RequestId longer = submit(second, 5);
  const RequestId shorter = submit(third, 5);
  for (int i = 0; i < 40; ++i) take();
  EXPECT_GE(n_mixed, 1u);
  EXPECT_EQ(texts[decoding], alone(first, 12));
  EXPECT_EQ(texts[longer], alone(second, 5));
  EXPECT_EQ(texts[shorter], alone(third, 5));
}

TEST_F(ExpandedLatents, AreNotWhereBitsArePromised) {
  if (!has_deepseek()) GTEST_SKIP() << "no shared data";
  const auto model = deepseek();
  ASSERT_NE(model, nullptr);
  const auto prompt = tokens(150, model->program.n_vocab);
  EXPECT_EQ(run(model, prompt, {.chunk_tokens = 150, .invariant = true}).n_pieces, 0u);
}

}  // namespace
}  // namespace pumice
