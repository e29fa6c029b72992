// The cost model against counts that go through tensors, rows, heads and keys one by one.
#include "bench/model_cost.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <set>

#include "tests/bench/counted_cost.hpp"
#include "tests/format/test_files.hpp"
#include "tests/models/plain_transformer.hpp"
#include "tests/shared_data.hpp"

namespace pumice::bench {
namespace {

using test::counted_part;

SyntheticModel model_of(const SyntheticShape& shape, std::string_view type = "Q4_K") {
  return *SyntheticModel::create(shape, {.type = &weight_type(type)});
}

/// Reading `n_prompt` tokens after `depth` tokens that are in the cache, in steps of at most
/// `step_tokens`; logits of the last row.
StepWork prefill_cost(const ModelShape& shape, uint32_t n_prompt, uint32_t depth,
                      uint32_t step_tokens) {
  StepWork cost;
  for (uint32_t done = 0; done < n_prompt; done += step_tokens) {
    const StepRows rows{depth + done, std::min(step_tokens, n_prompt - done)};
    cost += step_cost(shape, {&rows, 1}, done + rows.n_rows == n_prompt ? 1 : 0);
  }
  return cost;
}

/// `n_gen` steps of one row each, the first at position `depth`.
StepWork decode_cost(const ModelShape& shape, uint32_t n_gen, uint32_t depth) {
  StepWork cost;
  for (uint32_t i = 0; i < n_gen; ++i) {
    const StepRows row{depth + i, 1};
    cost += step_cost(shape, {&row, 1}, 1);
  }
  return cost;
}

/// Small, with heads that share keys, and layers whose matrices have several types: rows of 96 fit
/// no block of 256.
constexpr SyntheticShape kDense{.name = "dense",
                                .n_layers = 3,
                                .n_embd = 96,
                                .n_heads = 6,
                                .n_kv_heads = 2,
                                .n_ff = 256,
                                .n_vocab = 100};
constexpr SyntheticShape kExperts{.name = "experts",
                                  .n_layers = 2,
                                  .n_embd = 64,
                                  .n_heads = 4,
                                  .n_kv_heads = 4,
                                  .n_ff = 96,
                                  .n_vocab = 40,
                                  .tied = true,
                                  .n_experts = 5,
                                  .n_experts_used = 2};

void expect_equal(const Amount& got, const Amount& counted, std::string_view what) {
  EXPECT_EQ(got.flops, counted.flops) << what;
  EXPECT_EQ(got.weight_bytes, counted.weight_bytes) << what;
  EXPECT_EQ(got.kv_bytes, counted.kv_bytes) << what;
  EXPECT_EQ(got.activation_bytes, counted.activation_bytes) << what;
}

void expect_counted(const SyntheticModel& model, KvTypes kv_type, std::span<const StepRows> batch,
                    uint32_t n_logit_rows) {
  const ModelShape shape = *model_shape(model, kv_type);
  const StepWork cost = step_cost(shape, batch, n_logit_rows);
  for (size_t i = 0; i < kPartCount; ++i) {
    const auto part = static_cast<Part>(i);
    expect_equal(cost[part], counted_part(part, model, kv_type, batch, n_logit_rows),
                 part_name(part));
  }
}

/// Worked out by hand from the published dimensions.
struct ByHand {
  const char* preset;
  uint64_t n_params;
  uint64_t kv_bytes;      ///< of a position, F16
  uint64_t matrix_flops;  ///< of a row with logits: two for each weight of a matrix but embeddings
  uint64_t attention_flops;  ///< of a row that sees 4096 keys
};

TEST(ModelCost, PresetsCostWhatTheirDimensionsSay) {
  const ByHand all[] = {
      // 36 layers: 8 kv heads of 128; 192,937,984 weights each, and 4096 x 151936.
      {"qwen3-8b", 8'190'735'360, 147'456, 15'136'194'560, uint64_t{4} * 32 * 128 * 36 * 4096},
      // 34 layers: 4 kv heads of 256; 94,371,840 weights each, and 2560 x 262208. Five see all
      // keys, the others 1024.
      {"gemma3-4b", 3'880'263'168, 139'264, 7'759'790'080,
       uint64_t{4} * 8 * 256 * (5 * 4096 + 29 * 1024)},
      // 32 layers: 8 kv heads of 128; 100,663,296 weights each, and 3072 x 200064. Two tensors of
      // 48 divisors are not parameters.
      {"phi4-mini", 3'836'021'760 + 96, 131'072, 7'671'644'160, uint64_t{4} * 24 * 128 * 32 * 4096},
      // 48 layers: 4 kv heads of 128; 18,874,368 weights each, 8 experts of 4,718,592, and 2048 x
      // 151936.
      {"qwen3-30b-a3b", 30'532'122'624, 98'304, 6'058'147'840, uint64_t{4} * 32 * 128 * 48 * 4096},
      // 16 layers of 3 x 2048 x 8192 weights; 6 attend, with 8 kv heads of 64 and 10,485,760
      // weights, 10 convolve, with 16,777,216; and 2048 x 65536.
      {"lfm2-1.2b", 1'170'340'608, 12'288, 2'340'421'632, uint64_t{4} * 32 * 64 * 6 * 4096},
      // 24 layers of 3 x 2048 x 6144 weights; 6 attend, with 2 kv heads of 256 and 14,680,064
      // weights, 18 are delta nets, with 21,037,056; and 2048 x 248320.
      {"qwen3.5-like", 1'881'825'088, 12'288, 3'762'552'832, uint64_t{4} * 8 * 256 * 6 * 4096},
      // 24 layers: 8 kv heads of 64; 26,542,080 weights each, 4 experts of 24,883,200, and 2880 x
      // 201088, and 5,120 + 2,880 + 4 x 8,640 biases a layer, an addition each. Every other layer
      // sees 128 keys.
      {"gpt-oss-20b", 20'914'757'184, 49'152, 7'209'861'120 + 24 * 42'560,
       uint64_t{4} * 64 * 64 * 12 * (4096 + 128)}};
  for (const ByHand& expected : all) {
    const ModelShape shape =
        *model_shape(model_of(find_synthetic_preset(expected.preset).value()), KvType::kF16);
    EXPECT_EQ(shape.n_params, expected.n_params) << expected.preset;
    EXPECT_EQ(shape.kv_bytes_per_token(), expected.kv_bytes) << expected.preset;
    const StepRows row{4095, 1};
    const StepWork work = step_cost(shape, {&row, 1}, 1);
    uint64_t flops = 0;
    for (const Part part :
         {Part::kQkv, Part::kAttentionOutput, Part::kGateUp, Part::kDown, Part::kOutput}) {
      flops += work[part].flops;
    }
    EXPECT_EQ(flops, expected.matrix_flops) << expected.preset;
    EXPECT_EQ(work[Part::kAttention].flops, expected.attention_flops) << expected.preset;
  }
}

TEST(ModelCost, APromptIsWhatItsRowsHeadsAndVisibleKeysAddUpTo) {
  const StepRows prompt{0, 13};
  expect_counted(model_of(kDense), KvType::kF16, {&prompt, 1}, 1);
  expect_counted(model_of(kDense, "F16"), KvType::kF32, {&prompt, 1}, 13);
  expect_counted(model_of(kDense), {KvType::kBF16, KvType::kF32}, {&prompt, 1}, 1);
  SyntheticShape scaled = kDense;
  scaled.n_heads = 2;
  scaled.n_kv_heads = 1;
  scaled.n_embd = 64;
  expect_counted(model_of(scaled, "F16"), {KvType::kQ8_0, KvType::kQ4_0}, {&prompt, 1}, 1);
}

TEST(ModelCost, ARowAfterAContextSeesAllOfIt) {
  const StepRows row{29, 1};
  expect_counted(model_of(kDense, "Q8_0"), KvType::kF16, {&row, 1}, 1);
}

TEST(ModelCost, ALongContextAddsToAttentionAlone) {
  const SyntheticModel model = model_of(kDense);
  const ModelShape shape = *model_shape(model, KvType::kF16);
  for (const uint32_t n_rows : {1u, 8u}) {
    const StepRows deep{32768 - n_rows, n_rows};
    expect_counted(model, KvType::kF16, {&deep, 1}, 1);
    const StepRows near{0, n_rows};
    const StepWork far_work = step_cost(shape, {&deep, 1}, 1);
    const StepWork near_work = step_cost(shape, {&near, 1}, 1);
    for (size_t i = 0; i < kPartCount; ++i) {
      const auto part = static_cast<Part>(i);
      if (part != Part::kAttention) expect_equal(far_work[part], near_work[part], part_name(part));
    }
  }
}

TEST(ModelCost, AStepOfSeveralSequencesReadsItsWeightsOnceAndTheKeysOfEach) {
  const StepRows batch[] = {{4, 1}, {0, 7}, {16, 3}, {5, 0}};
  expect_counted(model_of(kDense), KvType::kF16, batch, 2);
}

TEST(ModelCost, AChunkWithoutLogitsLeavesTheOutputMatrixOut) {
  const StepRows chunk{0, 16};
  expect_counted(model_of(kDense), KvType::kF16, {&chunk, 1}, 0);
}

TEST(ModelCost, ExpertsCostATokenThoseItGoesThroughAndAStepThoseItsTokensMeet) {
  const StepRows row{3, 1};
  expect_counted(model_of(kExperts), KvType::kF16, {&row, 1}, 1);
  const StepRows prompt{0, 4};
  expect_counted(model_of(kExperts, "Q8_0"), KvType::kF16, {&prompt, 1}, 1);
}

TEST(ModelCost, ExpertsReadAreTheExpectationOverEveryRouting) {
  const ModelShape shape = *model_shape(model_of(kExperts), KvType::kF16);
  EXPECT_DOUBLE_EQ(shape.experts_read(1), 2);
  // Three rows choose one of the ten pairs of five experts each: a thousand routings.
  std::vector<uint32_t> pairs;
  for (uint32_t a = 0; a < 5; ++a) {
    for (uint32_t b = a + 1; b < 5; ++b) pairs.push_back((1u << a) | (1u << b));
  }
  double sum = 0;
  for (const uint32_t i : pairs) {
    for (const uint32_t j : pairs) {
      for (const uint32_t k : pairs) sum += std::popcount(i | j | k);
    }
  }
  EXPECT_NEAR(shape.experts_read(3), sum / 1000, 1e-12);
}

TEST(ModelCost, AFileSaysWhatItsSyntheticModelDoes) {
  for (const SyntheticShape& s : {kDense, kExperts}) {
    const SyntheticModel model = model_of(s);
    const pumice::test::TemporaryFile path;
    ASSERT_TRUE(write_synthetic_model(model, path.path()).ok());
    const Result<GgufFile> file = GgufFile::open(path.path());
    ASSERT_TRUE(file.ok()) << file.error().message;
    const Result<ModelShape> shape = model_shape(*file, KvType::kF16);
    ASSERT_TRUE(shape.ok()) << shape.error().message;
    EXPECT_EQ(shape->n_params, model.n_parameters());
    EXPECT_EQ(shape->file_bytes, model.data_bytes());
    const StepRows prompt{2, 5};
    const StepWork from_file = step_cost(*shape, {&prompt, 1}, 1);
    const StepWork from_model = step_cost(*model_shape(model, KvType::kF16), {&prompt, 1}, 1);
    for (size_t i = 0; i < kPartCount; ++i) {
      expect_equal(from_file.parts.at(i), from_model.parts.at(i), s.name);
    }
  }
}

TEST(ModelCost, AnotherShapeThanTheMetadataSayIsAnError) {
  const pumice::test::TemporaryFile path;
  ASSERT_TRUE(write_synthetic_model(model_of(kDense), path.path()).ok());
  std::string bytes = pumice::test::read_file(path.path());
  const std::string_view key = "llama.feed_forward_length";
  bytes.at(bytes.find(key) + key.size() + 4) = 64;  // behind the key and its type: not 256
  const Result<GgufFile> file = GgufFile::from_memory(std::as_bytes(std::span(bytes)), "model");
  ASSERT_TRUE(file.ok()) << file.error().message;
  const Result<ModelShape> shape = model_shape(*file, KvType::kF16);
  ASSERT_FALSE(shape.ok());
  EXPECT_EQ(shape.error().code, ErrorCode::kBadFile);
  EXPECT_NE(shape.error().message.find("blk.0.ffn_gate.weight"), std::string::npos);
}

TEST(ModelCost, PrefillIsTheSumOfItsStepsAndReadsWeightsOnceForEach) {
  const ModelShape shape = *model_shape(model_of(kDense), KvType::kF16);
  const StepWork whole = prefill_cost(shape, 40, 8, 16);
  StepWork sum;
  const StepRows chunks[] = {{8, 16}, {24, 16}, {40, 8}};
  for (const StepRows& chunk : chunks) {
    sum += step_cost(shape, {&chunk, 1}, chunk.first_position == 40 ? 1 : 0);
  }
  expect_equal(whole.total(), sum.total(), "prefill");
  // However it is cut, it computes the same.
  EXPECT_EQ(whole.total().flops, prefill_cost(shape, 40, 8, 512).total().flops);
  EXPECT_EQ(whole[Part::kQkv].weight_bytes,
            3 * prefill_cost(shape, 40, 8, 512)[Part::kQkv].weight_bytes);
}

TEST(ModelCost, DecodingReadsTheWeightsAndOneMoreKeyEachStep) {
  const ModelShape shape = *model_shape(model_of(kDense), KvType::kF16);
  const StepWork steps = decode_cost(shape, 3, 10);
  EXPECT_EQ(steps[Part::kAttention].kv_bytes, (11 + 12 + 13) * shape.kv_bytes_per_token());
  EXPECT_EQ(steps[Part::kOutput].weight_bytes,
            3 * decode_cost(shape, 1, 10)[Part::kOutput].weight_bytes);
}

TEST(ModelCost, AWindowLimitsTheKeysThatARowSees) {
  PUMICE_REQUIRE_SHARED(path, "reference/families/gemma2.gguf");
  const ModelSource source = ModelSource::open(path).value();
  const ModelShape shape = *model_shape(source, KvType::kF16);
  constexpr uint64_t kQDim = 4 * 64;
  constexpr uint64_t kKeyBytes = 2 * 2 * 64 * 2;
  constexpr uint64_t kWindow = 32;
  for (const StepRows rows : {StepRows{0, 5}, {0, 70}, {20, 30}, {40, 1}, {31, 2}}) {
    uint64_t pairs = 0;  // of a layer with a window and one without
    std::set<uint64_t> seen;
    std::set<uint64_t> all;
    for (uint64_t q = rows.first_position; q < rows.first_position + rows.n_rows; ++q) {
      for (uint64_t k = 0; k <= q; ++k) {
        all.insert(k);
        ++pairs;
        if (q - k >= kWindow) continue;
        seen.insert(k);
        ++pairs;
      }
    }
    const Amount attention = step_cost(shape, {&rows, 1}, 1)[Part::kAttention];
    EXPECT_EQ(attention.flops, 2 * pairs * 4 * kQDim) << rows.first_position;
    EXPECT_EQ(attention.kv_bytes, 2 * (seen.size() + all.size()) * kKeyBytes);
  }
}

TEST(ModelCost, PartsOfFamiliesAreWhatTheirNamesSay) {
  PUMICE_REQUIRE_SHARED(folder, "reference/families");
  for (const char* family : {"gemma2", "gemma3", "llama", "mixtral", "phi3", "qwen2", "qwen3"}) {
    const ModelSource source = ModelSource::open(folder / (std::string(family) + ".gguf")).value();
    const ModelShape shape = *model_shape(source, KvType::kF16);
    const StepRows row{0, 1};
    const StepWork token = step_cost(shape, {&row, 1}, 1);
    const uint64_t q_dim = uint64_t{shape.n_heads} * shape.head_dim;
    const uint64_t kv_dim = uint64_t{shape.n_kv_heads} * shape.head_dim;
    const uint64_t used = std::max(shape.n_experts_used, 1u);
    const uint64_t bias = std::string_view(family) == "qwen2" ? q_dim + 2 * kv_dim : 0;
    const uint64_t cap = std::string_view(family) == "gemma2" ? 2 * shape.n_vocab : 0;
    const uint64_t n = shape.n_layers;
    EXPECT_EQ(token[Part::kQkv].flops,
              n * (2 * uint64_t{shape.n_embd} * (q_dim + 2 * kv_dim) + bias))
        << family;
    EXPECT_EQ(token[Part::kAttentionOutput].flops, n * 2 * q_dim * shape.n_embd) << family;
    EXPECT_EQ(token[Part::kGateUp].flops, n * used * 4 * shape.n_embd * shape.n_ff) << family;
    EXPECT_EQ(token[Part::kDown].flops, n * used * 2 * shape.n_embd * shape.n_ff) << family;
    EXPECT_EQ(token[Part::kRouter].flops, n * 2 * shape.n_embd * shape.n_experts) << family;
    EXPECT_EQ(token[Part::kOutput].flops, 2 * uint64_t{shape.n_embd} * shape.n_vocab + cap)
        << family;
  }
}

TEST(ModelCost, PartsOfAModelWithBiasesAndPositionsCountThemOnce) {
  PUMICE_REQUIRE_SHARED(path, "reference/families/gpt2.gguf");
  const ModelShape shape = *model_shape(ModelSource::open(path).value(), KvType::kF16);
  const StepRows row{0, 1};
  const StepWork token = step_cost(shape, {&row, 1}, 1);
  const uint64_t n = shape.n_layers;
  const uint64_t width = shape.n_embd;
  const uint64_t n_ff = shape.n_ff;
  EXPECT_EQ(token[Part::kEmbedding].weight_bytes, 2 * width * 4);
  EXPECT_EQ(token[Part::kQkv].flops, n * (2 * width + 1) * 3 * width);
  EXPECT_EQ(token[Part::kQkv].weight_bytes, n * (width + 1) * 3 * width * 4);
  EXPECT_EQ(token[Part::kAttentionOutput].flops, n * (2 * width + 1) * width);
  EXPECT_EQ(token[Part::kGateUp].flops, n * (2 * width + 1) * n_ff);
  EXPECT_EQ(token[Part::kDown].flops, n * (2 * n_ff + 1) * width);
}

TEST(ModelCost, ValuesThatAreSmallerThanKeysAreReadAndMultipliedAsSuch) {
  const auto file = pumice::test::PlainTransformer(pumice::test::form_with_small_values()).file();
  const ModelShape shape = *model_shape(file->file(), {KvType::kF16, KvType::kQ8_0});
  const StepRows row{4, 1};
  const StepWork token = step_cost(shape, {&row, 1}, 1);
  constexpr uint64_t kKvHeads = 1 + 2 + 2 + 1;  // of the layers
  constexpr uint64_t kHead = 64 * 2 + 32 + 4;   // keys, values and their scale
  EXPECT_EQ(token[Part::kQkv].flops, 2 * 64 * (4 * 4 * 64 + kKvHeads * (64 + 32)));
  EXPECT_EQ(token[Part::kAttention].flops, 4 * 5 * 4 * 2 * (64 + 32));
  EXPECT_EQ(token[Part::kAttention].kv_bytes, 5 * kKvHeads * kHead);
  EXPECT_EQ(shape.kv_bytes_per_token(), kKvHeads * kHead);
}

TEST(ModelCost, ALatentIsReadOnceAndItsMatricesAreAttentions) {
  PUMICE_REQUIRE_SHARED(path, "reference/families/deepseek2.gguf");
  const ModelShape shape = *model_shape(ModelSource::open(path).value(), KvType::kF16);
  const StepRows row{4, 1};
  const StepWork token = step_cost(shape, {&row, 1}, 1);
  constexpr uint64_t kLayers = 2;
  constexpr uint64_t kHeads = 4;
  constexpr uint64_t kLatent = 64;
  constexpr uint64_t kRow = kLatent + 32;  // and what turns
  // Queries by a latent of 64, the row, and each head's way from 32 numbers to the latent.
  constexpr uint64_t kQkv = 128 * 64 + 64 * 256 + 128 * kRow + kHeads * 32 * kLatent;
  EXPECT_EQ(token[Part::kQkv].flops, kLayers * 2 * kQkv);
  EXPECT_EQ(token[Part::kQkv].weight_bytes, kLayers * 4 * kQkv);
  constexpr uint64_t kOutput = kHeads * kLatent * 64 + 256 * 128;
  EXPECT_EQ(token[Part::kAttentionOutput].flops, kLayers * 2 * kOutput);
  EXPECT_EQ(token[Part::kAttention].flops, kLayers * 5 * kHeads * 2 * (kRow + kLatent));
  EXPECT_EQ(token[Part::kAttention].kv_bytes, kLayers * 5 * kRow * 2);
  EXPECT_EQ(shape.kv_bytes_per_token(), kLayers * kRow * 2);

  // Many rows are cheaper by the 64 numbers of a head's keys and of its values: 100 after 30.
  const StepRows rows{30, 100};
  const StepWork chunk = step_cost(shape, {&rows, 1}, 1);
  constexpr uint64_t kPairs = 100 * 30 + 100 * 101 / 2;
  constexpr uint64_t kKeysBefore = 30 * kHeads * 2 * kLatent * (32 + 64);
  EXPECT_EQ(chunk[Part::kAttention].flops,
            kLayers * (kPairs * kHeads * 2 * (64 + 64) + kKeysBefore));
  EXPECT_EQ(chunk[Part::kQkv].flops, 100 * token[Part::kQkv].flops);
}

TEST(ModelCost, KnownModelsHaveTheFiguresOfTheirPapers) {
  const ModelShape shape = *model_shape(model_of(*find_synthetic_preset("llama-8b")), KvType::kF16);
  EXPECT_NEAR(static_cast<double>(shape.n_params), 8.03e9, 1e7);
  EXPECT_EQ(shape.kv_bytes_per_token(), 131072u);  // 32 layers * 2 * 8 heads * 128 * 2 bytes
  // Kaplan et al.: 2 flops a parameter and token besides attention, without the embedding.
  const StepRows row{0, 1};
  const StepWork token = step_cost(shape, {&row, 1}, 1);
  const double matrices = static_cast<double>(token.total().flops);
  const double embedding = 128256.0 * 4096;
  EXPECT_NEAR(matrices / (2 * (static_cast<double>(shape.n_params) - embedding)), 1, 1e-3);
}

/// The first length for which `attention_wins`, by trying them all.
uint64_t first_length(const std::function<bool(uint32_t)>& attention_wins) {
  uint32_t length = 1;
  while (!attention_wins(length)) ++length;
  return length;
}

TEST(ModelCost, CrossingsAreWhereAttentionFirstOutweighsTheFeedForward) {
  SyntheticShape wide_attention = kDense;  // whose projections alone outweigh
  wide_attention.n_kv_heads = 6;
  wide_attention.n_ff = 64;
  for (const SyntheticShape& s : {kDense, kExperts, wide_attention}) {
    const ModelShape shape = *model_shape(model_of(s), KvType::kF16);
    const std::vector<Crossing> lines = crossings(shape);
    ASSERT_EQ(lines.size(), 3u);
    const auto wins = [](const StepWork& cost, uint64_t Amount::*field, bool projections) {
      const auto of = [&](Part part) { return cost[part].*field; };
      uint64_t attention =
          field == &Amount::flops ? of(Part::kAttention) : cost[Part::kAttention].kv_bytes;
      if (projections) attention += of(Part::kQkv) + of(Part::kAttentionOutput);
      return attention > of(Part::kRouter) + of(Part::kGateUp) + of(Part::kDown);
    };
    for (const bool projections : {false, true}) {
      const auto got = [&](size_t i) {
        return projections ? lines[i].with_projections : lines[i].scores_only;
      };
      EXPECT_EQ(got(0), first_length([&](uint32_t n) {
                  return wins(decode_cost(shape, 1, n - 1), &Amount::flops, projections);
                }))
          << s.name;
      EXPECT_EQ(got(1), first_length([&](uint32_t n) {
                  return wins(prefill_cost(shape, n, 0, n), &Amount::flops, projections);
                }))
          << s.name;
      EXPECT_EQ(got(2), first_length([&](uint32_t n) {
                  return wins(decode_cost(shape, 1, n - 1), &Amount::weight_bytes, projections);
                }))
          << s.name;
    }
  }
}

}  // namespace
}  // namespace pumice::bench
