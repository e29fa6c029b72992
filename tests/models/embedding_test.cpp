// Embedding models: the fp64 evaluation says what an independent implementation says
// (reference/families-2026.md in the shared data), and how a file's texts become vectors.
#include "models/embedding.hpp"

#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "models/families.hpp"
#include "models/program_builder.hpp"
#include "models/ranking.hpp"
#include "models/reference.hpp"
#include "tests/models/nmse.hpp"
#include "tests/models/small_file.hpp"
#include "tests/shared_data.hpp"

namespace pumice {
namespace {

constexpr size_t kSequenceOfTokens = 3;  // whose rows the reference has

struct EmbeddingGolden {
  const char* name;
  double bound;  ///< of the error, which is the other side's: it computes in fp32
};

std::ostream& operator<<(std::ostream& out, const EmbeddingGolden& golden) {
  return out << golden.name;
}

class EmbeddingReference : public ::testing::TestWithParam<EmbeddingGolden> {
 protected:
  void SetUp() override {
    stem_ = test::shared_path(std::string("reference/embeddings/") + GetParam().name).string();
    if (!std::filesystem::exists(stem_ + ".json")) GTEST_SKIP() << "no shared data: " << stem_;
    std::ifstream file(stem_ + ".json");
    json_ = nlohmann::json::parse(file);
    source_ = ModelSource::open(stem_ + ".gguf").value();
    Result<Program> program = build_embedding_program(*source_);
    ASSERT_TRUE(program.ok()) << program.error().message;
    program_ = std::move(*program);
  }

  std::vector<float> floats(const char* suffix) const {
    std::vector<float> values(std::filesystem::file_size(stem_ + suffix) / sizeof(float));
    std::ifstream file(stem_ + suffix, std::ios::binary);
    file.read(reinterpret_cast<char*>(values.data()),
              static_cast<std::streamsize>(values.size() * sizeof(float)));
    return values;
  }

  std::string stem_;
  nlohmann::json json_;
  std::optional<ModelSource> source_;
  Program program_;
};

TEST_P(EmbeddingReference, TextsAndTheirTokensAgree) {
  EXPECT_EQ(pooling_name(program_.pooling.value()), json_.at("pooling").get<std::string>());
  const auto width = json_.at("n_embd").get<size_t>();
  ASSERT_EQ(program_.values[program_.logits].width, width);
  const auto sequences = json_.at("sequences").get<std::vector<std::vector<TokenId>>>();
  std::vector<double> texts;
  std::vector<double> tokens;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const std::vector<double> rows =
        reference_logits(*source_, program_, sequences[i], {.max_threads = 2}).value().logits;
    const std::vector<double> text = pool(*program_.pooling, std::span(rows), width);
    texts.insert(texts.end(), text.begin(), text.end());
    if (i == kSequenceOfTokens) tokens = pool(Pooling::kNone, std::span(rows), width);
  }
  const std::vector<float> expected = floats(".f32");
  ASSERT_EQ(texts.size(), expected.size());
  const double error = test::nmse(texts, expected);
  EXPECT_LE(error, GetParam().bound);
  const std::vector<float> expected_tokens = floats(".tok.f32");
  ASSERT_EQ(tokens.size(), expected_tokens.size());
  const double token_error = test::nmse(tokens, expected_tokens);
  EXPECT_LE(token_error, GetParam().bound);
  RecordProperty("nmse", fmt::format("{:.1e}", error));
  RecordProperty("nmse_tokens", fmt::format("{:.1e}", token_error));
}

std::string embedding_test_name(const ::testing::TestParamInfo<EmbeddingGolden>& info) {
  std::string name(info.param.name);
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

// The epsilon of BERT's norms is 1e-12, which nothing here could see.
INSTANTIATE_TEST_SUITE_P(Families, EmbeddingReference,
                         ::testing::Values(EmbeddingGolden{"bert-cls", 1e-12},
                                           EmbeddingGolden{"nomic-bert", 1e-12},
                                           EmbeddingGolden{"gemma-embedding", 2e-12},
                                           EmbeddingGolden{"qwen3-embedding", 1e-12}),
                         embedding_test_name);

TEST(Pooling, IsOfTheRowsOfAText) {
  const std::vector<double> rows = {1, 2, 3, 8, 5, 5};
  const auto pooled = [&](Pooling pooling) { return pool(pooling, std::span(rows), 2); };
  EXPECT_EQ(pooled(Pooling::kNone), rows);
  EXPECT_EQ(pooled(Pooling::kMean), (std::vector<double>{3, 5}));
  EXPECT_EQ(pooled(Pooling::kCls), (std::vector<double>{1, 2}));
  EXPECT_EQ(pooled(Pooling::kLast), (std::vector<double>{5, 5}));
  for (const char* name : {"none", "mean", "cls", "last"}) {
    EXPECT_EQ(pooling_name(parse_pooling(name).value()), name);
  }
  EXPECT_EQ(parse_pooling("max").error().message, "pooling must be one of none, mean, cls, last");
}

TEST(Normalise, MakesEachVectorOneLongButZeros) {
  std::vector<float> vectors = {3, 4, 0, 0, -2, 0};
  normalise(vectors, 2);
  EXPECT_EQ(vectors, (std::vector<float>{0.6f, 0.8f, 0, 0, -1, 0}));
}

/// One number a head and token, all scores equal: the mean of what each of four tokens sees.
std::vector<double> means(uint32_t window, uint32_t ahead) {
  const test::SmallFile file(
      {{"token_embd.weight", {4, 4}, {1, 0, 0, 0, 10, 0, 0, 0, 100, 0, 0, 0, 1000, 0, 0, 0}}});
  ProgramBuilder p({.architecture = "test", .n_vocab = 4, .context_length = 4});
  const ValueId x = p.embed("token_embd", 4, 4);
  const ValueId kv = p.append(p.state_group("text", 4, 1), x, x);
  const ValueId y =
      p.attention(p.scale(x, 0), kv, {.n_heads = 4, .scale = 1, .window = window, .ahead = ahead});
  const Program program = p.finish_embedding(y, Pooling::kNone).value();
  const std::vector<TokenId> tokens{0, 1, 2, 3};
  const std::vector<double> rows =
      reference_logits(file.file(), program, tokens, {.max_threads = 1}).value().logits;
  std::vector<double> first;
  for (size_t i = 0; i < rows.size(); i += 4) first.push_back(rows[i]);
  return first;
}

TEST(ReferenceOps, QueriesSeeKeysAhead) {
  const auto expect_means = [](const std::vector<double>& got,
                               const std::vector<double>& expected) {
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(got.at(i), expected[i], 1e-9) << i;
  };
  const double all = 1111.0 / 4;
  expect_means(means(0, op::kAllAhead), {all, all, all, all});
  expect_means(means(3, 1), {11.0 / 2, 111.0 / 3, 1110.0 / 3, 1100.0 / 2});
  expect_means(means(0, 1), {11.0 / 2, 111.0 / 3, all, all});
}

TEST(ReferenceOps, ARowIsAddedToEveryToken) {
  const test::SmallFile file({{"token_embd.weight", {2, 2}, {1, 2, 3, 4}},
                              {"types.weight", {2, 3}, {9, 9, 10, 20, 7, 7}}});
  ProgramBuilder p({.architecture = "test", .n_vocab = 2, .context_length = 4});
  const ValueId x = p.embed("token_embd", 2, 2);
  const Program program = p.finish_embedding(p.add_row(x, "types", 3, 1), Pooling::kNone).value();
  const std::vector<TokenId> tokens{1, 0};
  EXPECT_EQ(reference_logits(file.file(), program, tokens, {.max_threads = 1}).value().logits,
            (std::vector<double>{13, 24, 11, 22}));
}

TEST(ProgramBuilder, RefusesWindowsThatCannotReachAhead) {
  const auto error = [](uint32_t window, uint32_t ahead, uint32_t group_window) {
    ProgramBuilder p({.architecture = "test", .n_vocab = 4, .context_length = 4});
    const ValueId x = p.embed("token_embd", 4, 4);
    const ValueId kv = p.append(p.state_group("text", 1, 4, group_window), x, x);
    const ValueId y =
        p.attention(x, kv, {.n_heads = 1, .scale = 1, .window = window, .ahead = ahead});
    return p.finish_embedding(y, Pooling::kNone).error().message;
  };
  EXPECT_EQ(error(2, 2, 0), "attention: 2 keys ahead in a window of 2");
  EXPECT_EQ(error(3, 1, 3), "attention: keys ahead in a state group that keeps 3");
}

TEST(EmbeddingProgram, OfAModelThatWritesTextNeedsToBeAskedFor) {
  const std::string path = test::shared_path("reference/families/gemma2.gguf").string();
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no shared data: " << path;
  const ModelSource source = ModelSource::open(path).value();
  const Result<Program> refused = build_embedding_program(source);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(refused.error().message.find("--pooling last or mean"), std::string::npos);
  const Program program = build_embedding_program(source, Pooling::kLast).value();
  EXPECT_EQ(program.pooling, Pooling::kLast);
  // Neither its soft cap nor its output matrix: the last norm.
  EXPECT_EQ(program.ops.back().result, program.logits);
  EXPECT_TRUE(std::holds_alternative<op::RmsNorm>(program.ops.back().what));
}

TEST(EmbeddingProgram, IsRefusedWhereTheFileSaysWhatItCannotBe) {
  const auto error = [](const char* key, auto value) {
    GgufHeader header;
    header.set("general.architecture", "bert");
    for (const char* count : {"block_count", "attention.head_count"}) {
      header.set(std::string("bert.") + count, 1u);
    }
    for (const char* size : {"embedding_length", "feed_forward_length", "context_length"}) {
      header.set(std::string("bert.") + size, 8u);
    }
    header.set("bert.attention.layer_norm_epsilon", 1e-12f);
    header.set(key, value);
    const test::SmallFile file({{"token_embd.weight", {8, 4}}}, std::move(header));
    return build_program(file.file()).error().message;
  };
  EXPECT_EQ(error("bert.attention.causal", true),
            "bert.attention.causal: a causal mask is not supported for this architecture");
  EXPECT_NE(error("bert.pooling_type", 5u).find("bert.pooling_type: 5 is not supported"),
            std::string::npos);
  EXPECT_EQ(error("bert.pooling_type", 4u),
            "the file says that the model ranks texts, and has no tensor cls.output.weight");
  // What both would let by.
  EXPECT_EQ(error("bert.attention.causal", false), "the file has no tensor position_embd.weight");
}

SyntheticShape ranker(std::string_view architecture, std::string_view extras) {
  return {.name = "ranker", .architecture = architecture, .extras = extras};
}

/// W x + b of tensors of a model, in fp64.
std::vector<double> product(const ModelSource& source, const std::string& stem,
                            std::span<const double> x) {
  const GgufTensor* const weight = source.file().find_tensor(stem + ".weight");
  const std::vector<float> w = source.values(*weight).value();
  const GgufTensor* const bias = source.file().find_tensor(stem + ".bias");
  std::vector<double> y(w.size() / x.size());
  for (size_t row = 0; row < y.size(); ++row) {
    if (bias != nullptr) y[row] = double{source.values(*bias).value()[row]};
    for (size_t i = 0; i < x.size(); ++i) y[row] += double{w[row * x.size() + i]} * x[i];
  }
  return y;
}

const std::vector<TokenId> kSomeTokens{3, 99, 400, 7, 7, 250};

std::vector<double> rows_of(const ModelSource& source, const Program& program) {
  return reference_logits(source, program, kSomeTokens, {.max_threads = 2}).value().logits;
}

TEST(RankingProgram, OfAnEncoderIsAClassifierOfTheFirstToken) {
  constexpr std::string_view kExtras =
      "layer_norm +token_types.weight:256x2 pooling_type=4 +cls.weight +cls.bias "
      "+cls.output.weight:256x1 +cls.output.bias";
  const auto source =
      ModelSource::synthetic(SyntheticModel::create(ranker("bert", kExtras), {}).value()).value();
  const Program program = build_program(source).value();
  for (const char* tensor : {"cls.bias", "cls.output.bias"}) {  // the model has what is read
    EXPECT_NE(source.file().find_tensor(tensor), nullptr) << tensor;
  }
  EXPECT_EQ(program.pooling, Pooling::kCls);
  EXPECT_EQ(program.relevant_label, 0u);
  const std::vector<double> scores = rows_of(source, program);
  ASSERT_EQ(scores.size(), kSomeTokens.size());

  // The same without the classifier, whose formula stands here.
  Program encoder = program;
  const auto last = std::ranges::find_if(encoder.ops, [&](const Op& op) {
    const auto* const linear = std::get_if<op::Linear>(&op.what);
    return linear != nullptr && encoder.tensors[linear->weight.tensor].name == "cls.weight";
  });
  ASSERT_NE(last, encoder.ops.end());
  encoder.logits = std::get<op::Linear>(last->what).x;
  encoder.ops.erase(last, encoder.ops.end());
  const std::vector<double> rows = rows_of(source, encoder);
  std::vector<double> hidden = product(source, "cls", std::span(rows).first(256));
  for (double& x : hidden) x = std::tanh(x);
  EXPECT_NEAR(scores[0], product(source, "cls.output", hidden)[0], 1e-6);
  EXPECT_EQ(check_writes_text(program).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(build_embedding_program(source, Pooling::kMean).error().code,
            ErrorCode::kInvalidArgument);
}

TEST(RankingProgram, OfAModelThatWritesTextStandsForItsOutputAtTheLastToken) {
  const auto made = [](std::string_view extras) {
    return SyntheticModel::create(ranker("qwen3", extras), {.type = &weight_type("F32")});
  };
  const auto source =
      ModelSource::synthetic(
          made("pooling_type=4 +cls.output.weight:256x2 classifier.output_labels=no,yes").value())
          .value();
  const Program program = build_program(source).value();
  EXPECT_EQ(program.pooling, Pooling::kLast);
  EXPECT_EQ(program.relevant_label, 1u);
  EXPECT_EQ(program.values[program.logits].width, 2u);

  const std::vector<double> scores = rows_of(source, program);
  Program embeds = program;
  embeds.logits = std::get<op::Linear>(embeds.ops.back().what).x;
  embeds.ops.pop_back();
  const std::vector<double> rows = rows_of(source, embeds);
  const std::vector<double> expected = product(source, "cls.output", std::span(rows).last(256));
  EXPECT_NEAR(scores[scores.size() - 2], expected[0], 1e-6);
  EXPECT_NEAR(scores[scores.size() - 1], expected[1], 1e-6);
  // A classifier of other things.
  EXPECT_NE(made("pooling_type=4 +cls.output.weight:256x2 classifier.output_labels=good,bad")
                .error()
                .message.find("not a reranker"),
            std::string::npos);
  EXPECT_NE(made("pooling_type=4 +cls.output.weight:256x3").error().message.find("3 labels"),
            std::string::npos);
}

TEST(RankingProgram, OfOtherEncodersIsRefusedByName) {
  EXPECT_EQ(SyntheticModel::create(
                ranker("modern-bert", "layer_norm pooling_type=4 +cls.output.weight:256x1"), {})
                .error()
                .message,
            "shape 'ranker' makes no model: architecture modern-bert: its rerankers are not "
            "supported");
}

TEST(Relevance, IsBetweenZeroAndOne) {
  EXPECT_EQ(relevance(std::vector<float>{0}, 0), 0.5);
  EXPECT_NEAR(relevance(std::vector<float>{2}, 0), 1 / (1 + std::exp(-2.0)), 1e-12);
  EXPECT_EQ(relevance(std::vector<float>{-1000}, 0), 0);
  EXPECT_EQ(relevance(std::vector<float>{1000}, 0), 1);
  EXPECT_NEAR(relevance(std::vector<float>{1, 3, 2}, 1),
              std::exp(3.0) / (std::exp(1.0) + std::exp(2.0) + std::exp(3.0)), 1e-12);
  EXPECT_EQ(relevance(std::vector<float>{1000, 0}, 1), 0);
}

}  // namespace
}  // namespace pumice
