// The engine on forms of families that the shared data has no file for, against a plain forward
// pass or another family's logits; and where positions have embeddings, no context is longer than
// those.
#include "tests/models/plain_transformer.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/kv_memory.hpp"
#include "models/decoder.hpp"
#include "models/families.hpp"
#include "tests/engine/engine_fixture.hpp"
#include "tests/models/split_nemotron.hpp"
#include "vk/transfer.hpp"

namespace pumice {
namespace {

constexpr double kF32Bound = 1e-9;
constexpr double kF16KvBound = 1e-6;
constexpr double kDeepF16KvBound = 1e-3;         // 64 layers: 5e-5 here
constexpr double kLargeScoresF16KvBound = 2e-6;  // nothing divides them: rounded keys weigh more

class PlainTransformers : public test::EngineTest {};

class PlainForms : public test::EngineTest,
                   public ::testing::WithParamInterface<test::PlainForm> {};

TEST_P(PlainForms, SayTheSameInChunksAndWithoutFusion) {
  std::vector<TokenId> tokens(40);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(i * 31 % 67);
  const test::PlainTransformer plain(GetParam());
  const auto file = plain.file();
  const auto model = Model::load(pipelines_->device(), file->file());
  ASSERT_TRUE(model.ok()) << model.error().message;
  const std::vector<double> exact = plain.logits(tokens);
  const std::vector<float> expected(exact.begin(), exact.end());
  const auto error = [&](EngineOptions options) {
    options.math = ops::Math::kF32;
    return test::nmse(logits(*model, tokens, options), expected);
  };
  EXPECT_LE(error({.kv_type = KvType::kF32}), kF32Bound);
  EXPECT_LE(error({.kv_type = KvType::kF32, .chunk_tokens = 17}), kF32Bound);
  EXPECT_LE(error({.kv_type = KvType::kF32, .fusion = FusionRules::none(), .chunk_tokens = 7}),
            kF32Bound);
  EXPECT_LE(error({.kv_type = KvType::kF16}), GetParam().n_layers >= 64 ? kDeepF16KvBound
                                              : GetParam().scale == 1   ? kLargeScoresF16KvBound
                                                                        : kF16KvBound);
}

INSTANTIATE_TEST_SUITE_P(Forms, PlainForms, ::testing::ValuesIn(test::forms_without_a_file()),
                         [](const auto& given) { return given.param.name; });

/// The model of a block that predicts, driven step by step: no engine drafts with it yet.
class Drafting {
 public:
  static constexpr uint32_t kMost = 48;  // tokens
  static constexpr uint32_t kBlocks = kMost / kKvBlockTokens;

  Drafting(vk::PipelineLibrary& pipelines, const Model& model)
      : device_(pipelines.device()), arena_(device_, vk::MemoryDomain::kUpload, "draft", 4096) {
    const DecoderLimits limits{.rows = kMost, .logit_rows = kMost, .context_tokens = kMost};
    weights_ = model.weights->now();
    decoder_.emplace(Decoder::plan(device_, pipelines, *model.plan, *weights_, KvType::kF32,
                                   ops::Math::kF32, {}, limits)
                         .value());
    const uint64_t page_bytes = decoder_->state().page_bytes;
    kv_.emplace(KvMemory::create(device_, page_bytes, kBlocks, kBlocks).value());
    const size_t n_classes = decoder_->attention_classes().size();
    args_arena_.emplace(args_
                            .lay_out({.rows = kMost,
                                      .logit_rows = kMost,
                                      .attention_items = kMost,
                                      .attention_classes = static_cast<uint32_t>(n_classes),
                                      .chunks = 1})
                            .allocate(device_)
                            .value());
    table_ = arena_.allocate(kBlocks * sizeof(uint64_t)).value();
    sampled_ = arena_.allocate(sizeof(uint64_t)).value();
    for (uint32_t i = 0; i < kBlocks; ++i) table_.mapped<uint64_t>()[i] = kv_->address(i);
    EXPECT_TRUE(pipelines.compile_for(std::numeric_limits<double>::infinity(), {}).ok());
  }

  /// Logits of the next tokens of the text.
  std::vector<float> step(std::span<const TokenId> tokens, std::span<const float> given) {
    const auto n = static_cast<uint32_t>(tokens.size());
    args_.clear();
    args_.add_chunk(n);
    for (const TokenId token : tokens) {
      args_.add_logit_row(args_.add_row(token, position_ + args_.n_rows, 0));
    }
    const ops::SequenceChunk chunk{
        .seq = 0, .first_row = 0, .n_rows = n, .first_position = position_};
    decoder_->write_attention({&chunk, 1}, {}, args_);
    position_ += n;
    EXPECT_TRUE(vk::Uploader(device_).write(*decoder_->given(), given).ok());
    vk::Recorder recorder(device_, {});
    decoder_->record(recorder, args_,
                     {.sampled = sampled_,
                      .block_tables = {&table_, 1},
                      .table_stride = kBlocks,
                      .kv = kv_->range()});
    const vk::RecordedWork work = recorder.finish().value();
    for (const auto& segment : work.segments()) {
      EXPECT_TRUE(device_->wait(device_->submit({&segment.commands, 1}).value()).ok());
    }
    const std::vector<std::byte> bytes = vk::download(device_, decoder_->logits()).value();
    std::vector<float> logits(n * test::PlainTransformer::kVocab);
    std::memcpy(logits.data(), bytes.data(), logits.size() * sizeof(float));
    return logits;
  }

 private:
  std::shared_ptr<vk::Device> device_;
  std::shared_ptr<const ModelWeights> weights_;
  std::optional<Decoder> decoder_;
  std::optional<KvMemory> kv_;
  std::optional<vk::Arena> args_arena_;
  StepArgs args_;
  vk::Arena arena_;
  vk::BufferRange table_, sampled_;
  uint32_t position_ = 0;
};

class PlainPredictions : public PlainForms {};

TEST_P(PlainPredictions, AreThoseOfABlockThatIsLoadedWhenAskedFor) {
  std::vector<TokenId> tokens(40);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(i * 31 % 67);
  const test::PlainTransformer plain(GetParam());
  const auto file = plain.file();
  const auto model = Model::load(
      pipelines_->device(), file->file(),
      ModelPlan::of_program(file->file(), build_prediction(file->file()).value()).value());
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_FALSE(Engine::create(pipelines_, *model, {}).ok());  // it writes no text

  const std::span<const TokenId> next = std::span(tokens).subspan(1);
  const std::vector<double> hidden = plain.hidden(std::span(tokens).first(next.size()));
  const std::vector<double> exact = plain.predicted(next, hidden);
  const std::vector<float> given(hidden.begin(), hidden.end());
  const size_t width = GetParam().n_embd;
  for (const size_t chunk : {size_t{39}, size_t{17}, size_t{1}}) {
    Drafting drafting(*pipelines_, **model);
    std::vector<float> got;
    for (size_t first = 0; first < next.size(); first += chunk) {
      const size_t n = std::min(chunk, next.size() - first);
      const std::vector<float> rows =
          drafting.step(next.subspan(first, n), std::span(given).subspan(first * width, n * width));
      got.insert(got.end(), rows.begin(), rows.end());
    }
    EXPECT_LE(test::nmse(got, {exact.begin(), exact.end()}), kF32Bound) << chunk;
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, PlainPredictions, ::testing::ValuesIn(test::forms_that_predict()),
                         [](const auto& given) { return given.param.name; });

TEST_F(PlainTransformers, NemotronsExpertsInALatentSplitAFeedForward) {
  const auto stem = test::shared_path("reference/families/nemotron-h").string();
  if (!std::filesystem::exists(stem + ".gguf")) GTEST_SKIP() << "no shared data: " << stem;
  const auto tokens = test::read_json(stem + ".json").at("tokens").get<std::vector<TokenId>>();
  const auto file = test::split_nemotron(ModelSource::open(stem + ".gguf").value());
  const auto model = Model::load(pipelines_->device(), file->file());
  ASSERT_TRUE(model.ok()) << model.error().message;
  for (const uint32_t chunk : {512u, 17u}) {
    const auto got = logits(
        *model, tokens, {.kv_type = KvType::kF32, .math = ops::Math::kF32, .chunk_tokens = chunk});
    EXPECT_LE(test::nmse(got, test::read_floats(stem + ".f32")), kF32Bound) << chunk;
  }
}

TEST_F(PlainTransformers, NoContextIsLongerThanTheTableOfPositions) {
  constexpr uint32_t kMost = test::PlainTransformer::kContext;
  const std::vector<test::PlainForm> forms = test::forms_without_a_file();
  const auto learned = std::ranges::find_if(forms, &test::PlainForm::learned_positions);
  const auto file = test::PlainTransformer(*learned).file();
  const auto model = Model::load(pipelines_->device(), file->file()).value();
  EXPECT_TRUE(Engine::create(pipelines_, model, {.context_tokens = kMost}).ok());
  const auto engine = Engine::create(pipelines_, model, {.context_tokens = kMost + 1});
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(engine.error().message,
            "a context of 65 tokens: the model has position embeddings for 64");
}

}  // namespace
}  // namespace pumice
