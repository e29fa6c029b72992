// LoRA adapters: what rows with one say is what the model says whose matrices were merged with it,
// whatever rows are beside them; and what others say is what they say without adapters.
#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/engine/engine_fixture.hpp"
#include "tests/models/plain_transformer.hpp"
#include "tests/models/small_adapter.hpp"

namespace pumice {
namespace {

constexpr double kF32Bound = 1e-9;

std::vector<TokenId> some_tokens(size_t n, uint32_t step) {
  std::vector<TokenId> tokens(n);
  for (size_t i = 0; i < n; ++i) tokens[i] = static_cast<TokenId>((i + 1) * step % 67);
  return tokens;
}

class Adapters : public test::EngineTest, public ::testing::WithParamInterface<test::PlainForm> {
 protected:
  /// Weights with two adapters of different ranks, and the weights merged with each.
  struct Made {
    explicit Made(const test::PlainForm& form) : plain(form), file(plain.file()) {
      const Program base = build_program(file->file()).value();
      for (const auto& [seed, rank, alpha] : {std::tuple(1u, 2u, 0.0f), {2u, 5u, 3.0f}}) {
        const test::SmallAdapter adapter(base, seed, rank, alpha);
        sources.push_back(adapter.source("adapter " + std::to_string(seed)));
        merged.push_back(plain);
        for (const auto& [tensor, added] : adapter.added()) merged.back().add_to(tensor, added);
      }
    }
    test::PlainTransformer plain;
    std::unique_ptr<test::SmallFile> file;
    std::vector<AdapterSource> sources;
    std::vector<test::PlainTransformer> merged;
  };

  static std::shared_ptr<const Model> load(const ModelSource& source) {
    auto model = Model::load(pipelines_->device(), source);
    EXPECT_TRUE(model.ok()) << model.error().message;
    return model.ok() ? *model : nullptr;
  }
  static EngineOptions exact() {
    return {.kv_type = KvType::kF32,
            .math = ops::Math::kF32,
            .context_tokens = test::PlainTransformer::kContext,
            .n_sequences = 4};
  }
  static std::vector<float> logits_with(const std::shared_ptr<const Model>& model,
                                        const std::vector<TokenId>& tokens, uint32_t adapter,
                                        EngineOptions options) {
    options.prompt_logits = true;
    const auto engine = make_engine(model, options);
    std::vector<float> got;
    const auto keep = [&](uint32_t, std::span<const float> row) {
      got.insert(got.end(), row.begin(), row.end());
    };
    const auto id = engine->submit(
        {.prompt = tokens, .max_new_tokens = 1, .adapter = adapter, .on_logits = keep});
    EXPECT_TRUE(id.ok()) << id.error().message;
    while (!engine->idle()) step(*engine);
    return got;
  }
  struct Asked {
    std::vector<TokenId> prompt;
    uint32_t adapter;
  };
  /// What requests that run together say.
  static std::vector<std::vector<TokenId>> say(Engine& engine, const std::vector<Asked>& asked,
                                               std::vector<CacheReport>* reports = nullptr) {
    std::map<RequestId, size_t> by_id;
    for (size_t i = 0; i < asked.size(); ++i) {
      const auto id = engine.submit(
          {.prompt = asked[i].prompt, .max_new_tokens = 8, .adapter = asked[i].adapter});
      EXPECT_TRUE(id.ok()) << id.error().message;
      by_id[*id] = i;
    }
    std::vector<std::vector<TokenId>> said(asked.size());
    if (reports != nullptr) reports->resize(asked.size());
    while (!engine.idle()) {
      for (const StepEvent& event : step(engine)) {
        const size_t i = by_id.at(event.request);
        if (event.token) said[i].push_back(*event.token);
        if (event.report && reports != nullptr) (*reports)[i] = event.report->cache;
      }
    }
    return said;
  }
};

/// Of every form, what its matrices have in common with others and how they are fused.
class AdaptersOfForms : public Adapters {};

TEST_P(AdaptersOfForms, SayWhatTheMergedModelSays) {
  const Made made(GetParam());
  const auto model = load(ModelSource(made.file->file()).with_adapters(made.sources));
  ASSERT_NE(model, nullptr);
  ASSERT_EQ(model->program.adapters.size(), 2u);
  const std::vector<TokenId> tokens = some_tokens(40, 31);
  const std::vector<double> plain = made.plain.logits(tokens);
  for (uint32_t adapter = 1; adapter <= 2; ++adapter) {
    const std::vector<double> all = made.merged[adapter - 1].logits(tokens);
    const std::vector<float> expected(all.begin(), all.end());
    EXPECT_GT(test::nmse({plain.begin(), plain.end()}, expected), 1e-3);  // it can be seen
    for (const uint32_t chunk : {17u, 1u}) {
      EngineOptions options = exact();
      options.chunk_tokens = chunk;
      EXPECT_LE(test::nmse(logits_with(model, tokens, adapter, options), expected), kF32Bound)
          << "adapter " << adapter << ", chunks of " << chunk;
    }
    EngineOptions unfused = exact();
    unfused.fusion = FusionRules::none();
    EXPECT_LE(test::nmse(logits_with(model, tokens, adapter, unfused), expected), kF32Bound);
  }
}

TEST_P(Adapters, ChangeNoBitOfRowsWithoutOne) {
  const Made made(GetParam());
  const auto base = load(made.file->file());
  const auto model = load(ModelSource(made.file->file()).with_adapters(made.sources));
  ASSERT_NE(model, nullptr);
  const std::vector<TokenId> tokens = some_tokens(40, 31);
  const std::vector<float> expected = logits_with(base, tokens, 0, exact());
  EXPECT_EQ(logits_with(model, tokens, 0, exact()), expected);
}

TEST_P(Adapters, AreRowsOfOneBatch) {
  const Made made(GetParam());
  const auto model = load(ModelSource(made.file->file()).with_adapters(made.sources));
  ASSERT_NE(model, nullptr);
  const std::vector<Asked> asked = {{some_tokens(20, 31), 1},
                                    {some_tokens(20, 31), 0},
                                    {some_tokens(20, 31), 2},
                                    {some_tokens(9, 7), 2}};
  EngineOptions options = exact();
  options.invariant = true;  // the text of a batch is that of single runs, to the bit
  std::vector<std::vector<TokenId>> alone;
  for (const Asked& one : asked) {
    const auto engine = make_engine(model, options);
    alone.push_back(say(*engine, {one})[0]);
  }
  EXPECT_NE(alone[0], alone[1]);
  EXPECT_NE(alone[2], alone[1]);
  EXPECT_NE(alone[2], alone[0]);
  const auto engine = make_engine(model, options);
  EXPECT_EQ(say(*engine, asked), alone);
  EXPECT_EQ(say(*engine, asked), alone);  // out of the cache, each its own
  // One after the other, recorded steps of one shape follow each other with and without adapters.
  for (const size_t i : {1u, 0u, 1u, 2u}) EXPECT_EQ(say(*engine, {asked[i]})[0], alone[i]) << i;
  EXPECT_GT(engine->n_replays(), 0u);
  EXPECT_TRUE(engine->check_integrity().ok());
}

TEST_P(Adapters, RecordNothingInStepsWithoutOne) {
  const Made made(GetParam());
  const auto model = load(ModelSource(made.file->file()).with_adapters(made.sources));
  ASSERT_NE(model, nullptr);
  const auto engine = make_engine(model, exact());
  const auto n_kernels = [&] {
    return std::ranges::count_if(engine->variants(),
                                 [](const std::string& name) { return name.starts_with("lora"); });
  };
  (void)say(*engine, {{some_tokens(20, 31), 0}});
  EXPECT_EQ(n_kernels(), 0);
  (void)say(*engine, {{some_tokens(20, 31), 0}, {some_tokens(20, 7), 1}});
  EXPECT_EQ(n_kernels(), 2);
}

TEST_P(Adapters, HavePrefixesOfTheirOwn) {
  const Made made(GetParam());
  const auto model = load(ModelSource(made.file->file()).with_adapters(made.sources));
  ASSERT_NE(model, nullptr);
  const auto engine = make_engine(model, exact());
  const std::vector<TokenId> prompt = some_tokens(40, 31);
  std::vector<CacheReport> reports;
  for (const uint32_t adapter : {0u, 1u, 2u}) {
    (void)say(*engine, {{prompt, adapter}}, &reports);
    EXPECT_EQ(reports[0].cached_tokens, 0u) << "of another adapter, " << adapter;
  }
  for (const uint32_t adapter : {2u, 0u, 1u}) {
    (void)say(*engine, {{prompt, adapter}}, &reports);
    EXPECT_GT(reports[0].cached_tokens, 0u) << "of its own, " << adapter;
  }
}

TEST_P(Adapters, OfARequestAreOnesThatTheModelHas) {
  const Made made(GetParam());
  const auto model = load(ModelSource(made.file->file()).with_adapters(made.sources));
  ASSERT_NE(model, nullptr);
  const auto engine = make_engine(model, exact());
  const auto id = engine->submit({.prompt = {1}, .max_new_tokens = 1, .adapter = 3});
  ASSERT_FALSE(id.ok());
  EXPECT_EQ(id.error().message, "adapter 3 of the 2 that the model has");
}

TEST_P(Adapters, AreInSavedConversations) {
  const Made made(GetParam());
  const auto model = load(ModelSource(made.file->file()).with_adapters(made.sources));
  ASSERT_NE(model, nullptr);
  const std::vector<TokenId> prompt = some_tokens(40, 31);
  const auto engine = make_engine(model, exact());
  const auto id = engine->submit({.prompt = prompt, .max_new_tokens = 4, .adapter = 2});
  ASSERT_TRUE(id.ok());
  while (engine->sequence(*id).ok() && engine->sequence(*id)->tokens.size() < 42) step(*engine);
  const auto bytes = engine->save(engine->sequence(*id).value());
  ASSERT_TRUE(bytes.ok()) << bytes.error().message;
  const auto other = make_engine(model, exact());
  const auto restored = other->restore(*bytes);
  ASSERT_TRUE(restored.ok()) << restored.error().message;
  EXPECT_EQ(restored->adapter, 2u);
  EXPECT_GT(restored->state_tokens, 0u);
  std::vector<CacheReport> reports;
  (void)say(*other, {{prompt, 0}}, &reports);
  EXPECT_EQ(reports[0].cached_tokens, 0u);
  (void)say(*other, {{prompt, 2}}, &reports);
  EXPECT_GT(reports[0].cached_tokens, 0u);
  // A model without that adapter knows nothing of it.
  const auto base = make_engine(load(made.file->file()), exact());
  const auto refused = base->restore(*bytes);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "saved conversation: it belongs to another model");
}

/// Matrices apart, one for q, k and v, and experts.
std::vector<test::PlainForm> some_forms() {
  std::vector<test::PlainForm> some = test::forms_without_a_file();
  std::erase_if(some, [](const test::PlainForm& form) {
    return form.name != "llama_wide_heads" && form.name != "gptneox_in_turn" &&
           form.name != "qwen3moe";
  });
  return some;
}

INSTANTIATE_TEST_SUITE_P(Forms, AdaptersOfForms, ::testing::ValuesIn(test::forms_without_a_file()),
                         [](const auto& given) { return given.param.name; });
INSTANTIATE_TEST_SUITE_P(Forms, Adapters, ::testing::ValuesIn(some_forms()),
                         [](const auto& given) { return given.param.name; });

}  // namespace
}  // namespace pumice
