// What caching keys and values in a type costs: logits against an independent implementation's in
// fp32 (docs/TUNING.md has the table that this prints).
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "tests/engine/engine_fixture.hpp"

namespace pumice {
namespace {

using enum KvType;

struct Kept {
  KvTypes types;
  double bound;  ///< of the normalised mean-square error, of all models here
};

const Kept kKept[] = {{kF16, 1e-6},  {kBF16, 2e-5},          {{kQ8_0, kF16}, 1e-4},
                      {kQ8_0, 3e-4}, {{kQ8_0, kQ4_0}, 5e-2}, {kQ4_0, 8e-2}};

/// Heads of 64, 128 and 256 elements, and a model with windows and soft caps.
class KeptIn : public test::EngineTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(KeptIn, EachTypeTheLogitsErrByNoMoreThanItsBound) {
  const auto stem = test::shared_path(std::string("reference/families/") + GetParam());
  if (!std::filesystem::exists(stem.string() + ".json")) GTEST_SKIP() << "no shared data: " << stem;
  const auto model = load(stem.string() + ".gguf");
  ASSERT_NE(model, nullptr);
  const auto tokens =
      test::read_json(stem.string() + ".json").at("tokens").get<std::vector<TokenId>>();
  const auto expected = test::read_floats(stem.string() + ".f32");
  std::string table = fmt::format("{:<8}", GetParam());
  for (const Kept& kept : kKept) {
    const auto engine = make_engine(model, {.kv_type = kept.types,
                                            .math = ops::Math::kF32,
                                            .context_tokens = static_cast<uint32_t>(tokens.size()),
                                            .chunk_tokens = 40,
                                            .prompt_logits = true,
                                            .greedy_only = true});
    ASSERT_NE(engine, nullptr);
    const double error = test::nmse(logits(*engine, tokens), expected);
    EXPECT_LE(error, kept.bound) << kept.types.name();
    const std::set<std::string> used = engine->variants();
    EXPECT_TRUE(std::ranges::any_of(used, [&](const std::string& label) {
      return label.starts_with("flash_attention.tile." + kept.types.name());
    })) << kept.types.name();
    table += fmt::format("  {} {:.1e}", kept.types.name(), error);
  }
  fmt::print("{}\n", table);
}

INSTANTIATE_TEST_SUITE_P(Families, KeptIn, ::testing::Values("llama", "gemma2", "qwen3", "gemma"));

/// Rows of 96 numbers, of which 64 are values too.
class LatentKeptIn : public test::EngineTest {};

TEST_F(LatentKeptIn, ATypeTheLogitsErrByNoMoreThanItsBoundWhateverThatOfValues) {
  const auto stem = test::shared_path("reference/families/deepseek2");
  if (!std::filesystem::exists(stem.string() + ".json")) GTEST_SKIP() << "no shared data: " << stem;
  const auto model = load(stem.string() + ".gguf");
  ASSERT_NE(model, nullptr);
  const auto tokens =
      test::read_json(stem.string() + ".json").at("tokens").get<std::vector<TokenId>>();
  const auto expected = test::read_floats(stem.string() + ".f32");
  std::string table = "deepseek2";
  for (const auto& [type, bound] : {std::pair(kF16, 1e-6), {kQ8_0, 3e-4}, {kQ4_0, 8e-2}}) {
    const EngineOptions options{.kv_type = type, .math = ops::Math::kF32, .chunk_tokens = 40};
    const std::vector<float> got = logits(model, tokens, options);
    const double error = test::nmse(got, expected);
    EXPECT_LE(error, bound) << kv_type_name(type);
    table += fmt::format("  {} {:.1e}", kv_type_name(type), error);
    EngineOptions other = options;
    other.kv_type = KvTypes(type, kF32);
    EXPECT_EQ(logits(model, tokens, other), got) << kv_type_name(type);
    const auto bytes = [&](KvTypes types) {
      return state_layout(model->program, types).block_bytes();
    };
    EXPECT_EQ(bytes({type, kF32}), 16 * 2 * uint64_t{kv_row_bytes(type, 96)});
  }
  fmt::print("{}\n", table);
}

}  // namespace
}  // namespace pumice
