// The fp64 evaluation of each family's program says what an independent implementation says
// (reference/README.md in the shared data says how its logits were made).
#include "models/reference.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "models/families.hpp"
#include "tests/models/nmse.hpp"
#include "tests/shared_data.hpp"

namespace pumice {
namespace {

const ReferenceLimits kTwoThreads{.max_threads = 2};
constexpr double kMarginThatCounts = 0.01;
constexpr size_t kLeastCompared = 27;  // greedy tokens of 32

/// A model of the shared data, and how near its logits come.
struct Golden {
  const char* stem;
  double bound = 1e-11;  ///< of the error, which is the other side's: it computes in fp32
};

std::ostream& operator<<(std::ostream& out, const Golden& golden) { return out << golden.stem; }

std::vector<float> read_floats(const std::filesystem::path& path) {
  std::vector<float> values(std::filesystem::file_size(path) / sizeof(float));
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(values.data()),
            static_cast<std::streamsize>(values.size() * sizeof(float)));
  return values;
}

class Reference : public ::testing::TestWithParam<Golden> {
 protected:
  void SetUp() override {
    stem_ = test::shared_path(std::string("reference/") + GetParam().stem).string();
    if (!std::filesystem::exists(stem_ + ".json")) GTEST_SKIP() << "no shared data: " << stem_;
    std::ifstream file(stem_ + ".json");
    json_ = nlohmann::json::parse(file);
    source_ = ModelSource::open(stem_ + ".gguf").value();
    Result<Program> program = build_program(*source_);
    ASSERT_TRUE(program.ok()) << program.error().message;
    program_ = std::move(*program);
  }

  std::vector<double> logits_of(const std::vector<TokenId>& tokens) const {
    const Result<ReferenceLogits> result =
        reference_logits(*source_, program_, tokens, kTwoThreads);
    EXPECT_TRUE(result.ok()) << result.error().message;
    if (!result.ok()) return {};
    EXPECT_EQ(result->n_layers, program_.layers.size());
    EXPECT_EQ(result->logits.size(), tokens.size() * program_.n_vocab);
    return result->logits;
  }

  std::string stem_;
  nlohmann::json json_;
  std::optional<ModelSource> source_;
  Program program_;
};

TEST_P(Reference, LogitsAgree) {
  const auto tokens = json_.at("tokens").get<std::vector<TokenId>>();
  const std::vector<float> expected = read_floats(stem_ + ".f32");
  const std::vector<double> logits = logits_of(tokens);
  ASSERT_EQ(logits.size(), expected.size());
  const double error = test::nmse(logits, expected);
  EXPECT_LE(error, GetParam().bound);
  RecordProperty("nmse", fmt::format("{:.1e}", error));
}

TEST_P(Reference, LongSequencesAgree) {
  if (!json_.contains("long")) GTEST_SKIP() << "no long sequence";
  const nlohmann::json& sequence = json_.at("long");
  const auto tokens = sequence.at("tokens").get<std::vector<TokenId>>();
  const std::vector<float> expected = read_floats(stem_ + ".long.f32");
  const std::vector<double> all = logits_of(tokens);
  ASSERT_EQ(all.size(), tokens.size() * program_.n_vocab);
  std::vector<double> chosen;
  for (const auto position : sequence.at("positions").get<std::vector<size_t>>()) {
    const auto row = all.begin() + static_cast<ptrdiff_t>(position * program_.n_vocab);
    chosen.insert(chosen.end(), row, row + program_.n_vocab);
  }
  ASSERT_EQ(chosen.size(), expected.size());
  const double error = test::nmse(chosen, expected);
  EXPECT_LE(error, GetParam().bound);
  RecordProperty("nmse", fmt::format("{:.1e}", error));
}

TEST_P(Reference, GreedyTokensAgreeWhereTheMarginIsClear) {
  if (!json_.contains("greedy")) GTEST_SKIP() << "no greedy reference";
  const nlohmann::json& greedy = json_.at("greedy");
  auto tokens = greedy.at("prompt_tokens").get<std::vector<TokenId>>();
  const auto expected = greedy.at("generated").get<std::vector<TokenId>>();
  const auto margins = greedy.at("margin").get<std::vector<double>>();
  const size_t n_prompt = tokens.size();
  // Each token is compared after the expected ones before it, which are those that greedy decoding
  // reads as long as all agree.
  tokens.insert(tokens.end(), expected.begin(), expected.end());
  const std::vector<double> logits = logits_of(tokens);
  ASSERT_FALSE(logits.empty());
  size_t n_compared = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (margins[i] <= kMarginThatCounts) continue;
    const auto row = logits.begin() + static_cast<ptrdiff_t>((n_prompt + i - 1) * program_.n_vocab);
    const auto best = std::max_element(row, row + program_.n_vocab) - row;
    ASSERT_EQ(static_cast<TokenId>(best), expected[i]) << "token " << i;
    ++n_compared;
  }
  EXPECT_GE(n_compared, kLeastCompared);
}

std::string test_name(const ::testing::TestParamInfo<Golden>& info) {
  std::string name(info.param.stem);
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

// clang-format off
INSTANTIATE_TEST_SUITE_P(Families, Reference,
    ::testing::Values(
        Golden{"families/afmoe", 5e-11},
        Golden{"families/apertus"},
        Golden{"families/bailingmoe2"},
        Golden{"families/command-r"},
        Golden{"families/deepseek-v3"},
        Golden{"families/deepseek2"},
        Golden{"families/ernie4-5-moe"},
        Golden{"families/exaone4"},
        Golden{"families/falcon-h1"},
        Golden{"families/gemma", 5e-11},
        Golden{"families/gemma2", 5e-11},
        Golden{"families/gemma3", 5e-11},
        Golden{"families/gemma4", 2e-10},
        Golden{"families/glm47-flash"},
        Golden{"families/glm4moe"},
        Golden{"families/gpt-oss"},
        Golden{"families/gpt2"},
        Golden{"families/gptneox"},
        Golden{"families/granite"},
        Golden{"families/granitehybrid"},
        Golden{"families/hunyuan-dense", 5e-11},
        Golden{"families/jamba"},
        Golden{"families/kimi-linear"},
        Golden{"families/lfm2"},
        Golden{"families/llama"},
        Golden{"families/llama-linear"},
        Golden{"families/llama-nemo"},
        Golden{"families/llama-tied", 2e-11},
        Golden{"families/llama-yarn"},
        Golden{"families/llama3-rope"},
        Golden{"families/minimax-m2"},
        Golden{"families/mistral3"},
        Golden{"families/mistral4"},
        Golden{"families/mixtral"},
        Golden{"families/nemotron-h"},
        Golden{"families/phi3"},
        Golden{"families/qwen2"},
        Golden{"families/qwen3", 5e-11},
        Golden{"families/qwen35"},
        Golden{"families/qwen35moe"},
        Golden{"families/qwen3next"},
        Golden{"families/qwen3vl", 5e-10},
        Golden{"families/seed-oss"},
        Golden{"families/smallthinker"},
        Golden{"families/smollm3"},
        Golden{"families/stablelm"},
        Golden{"families/step35"},
        Golden{"quants/F16"},
        Golden{"quants/Q4_K"},
        Golden{"quants/mix-Q4_K_M"},
        Golden{"quants/mixtral-Q8_0"},
        Golden{"quants/qwen2-Q4_K_M"}),
    test_name);
// clang-format on

TEST(ReferenceInTime, LeavesLayersOutFromTheLast) {
  const SyntheticModel tiny = SyntheticModel::create({.n_layers = 5}, {}).value();
  const ModelSource source = ModelSource::synthetic(tiny).value();
  const Program program = build_program(source).value();
  const std::vector<TokenId> tokens{3, 1, 4};
  const ReferenceLogits all = reference_logits(source, program, tokens).value();
  EXPECT_EQ(all.n_layers, 5u);
  const ReferenceLogits hurried = reference_logits(source, program, tokens, {.seconds = 0}).value();
  EXPECT_EQ(hurried.n_layers, 1u);
  const ReferenceLogits one = reference_logits(source, program, tokens, {.n_layers = 1}).value();
  EXPECT_EQ(one.n_layers, 1u);
  EXPECT_EQ(one.logits, hurried.logits);
  const ReferenceLogits two = reference_logits(source, program, tokens, {.n_layers = 2}).value();
  EXPECT_EQ(two.n_layers, 2u);
  EXPECT_NE(two.logits, one.logits);
  EXPECT_NE(two.logits, all.logits);
  const ReferenceLogits five = reference_logits(source, program, tokens, {.n_layers = 5}).value();
  EXPECT_EQ(five.logits, all.logits);
}

TEST(ReferenceThreads, ChangeNoBit) {
  const SyntheticModel made =
      SyntheticModel::create(find_synthetic_preset("moe-tiny").value(), {}).value();
  const ModelSource source = ModelSource::synthetic(made).value();
  const Program program = build_program(source).value();
  std::vector<TokenId> tokens(37);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(i * 13 % 512);
  const auto logits = [&](size_t threads) {
    return reference_logits(source, program, tokens, {.max_threads = threads}).value().logits;
  };
  EXPECT_EQ(logits(1), logits(2));
}

}  // namespace
}  // namespace pumice
