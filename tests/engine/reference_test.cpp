// Logits and greedy tokens against an independent implementation's (reference/README.md in the
// shared data says how they were made and what a bound can see).
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstring>
#include <set>
#include <string_view>

#include "models/families.hpp"
#include "shaders/common/tuning.hpp"
#include "shaders/gemv/gemv_cases.hpp"
#include "shaders/spirv.hpp"
#include "tests/engine/engine_fixture.hpp"
#include "vk/transfer.hpp"

namespace pumice {
namespace {

constexpr double kF32Bound = 1e-9;
constexpr double kF16KvBound = 1e-6;
constexpr double kI8Bound = 5e-4;
constexpr double kPlanesBound = 1e-8;
constexpr double kF16MathBound = 2e-6;
/// Of what kAuto leaves to fp32. Gemma 4 does not divide its scores by the root of head_dim, so
/// that what rounding does to q and k weighs eight times as much in them; delta nets carry what
/// rounding does to keys and values from row to row.
constexpr double kF16MathBoundByName = 1e-5;
constexpr double kMarginThatCounts = 0.01;
constexpr size_t kLeastAgreed = 28;  // greedy tokens of 32

class Reference : public test::EngineTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    if (IsSkipped()) return;
    stem_ = test::shared_path(std::string("reference/") + GetParam());
    if (!std::filesystem::exists(stem_.string() + ".json"))
      GTEST_SKIP() << "no shared data: " << stem_;
    json_ = test::read_json(stem_.string() + ".json");
    model_ = load(stem_.string() + ".gguf");
    ASSERT_NE(model_, nullptr);
  }
  void TearDown() override { model_.reset(); }

  static bool has_matrix_cores() {
    const auto variants =
        ops::gemm_variants(pipelines_->device()->plan(), ops::Math::kF16, ops::XRoute::kPortable);
    return find_spirv("gemm.f16.matrix").ok() &&
           std::ranges::any_of(
               variants, [](const ops::GemmVariant& variant) { return variant.obstacle.empty(); });
  }

  double f16_math_bound() const {
    const bool by_name = std::string_view(GetParam()) == "families/gemma4" ||
                         product_math(model_->program, ops::Math::kAuto) == ops::Math::kF32;
    return by_name ? kF16MathBoundByName : kF16MathBound;
  }

  /// Logits of the short prompt with F32 KV; `variants` gets the kernels that were dispatched.
  std::vector<float> logits_in(ops::Math math, std::set<std::string>& variants,
                               uint32_t chunk_tokens = EngineOptions().chunk_tokens) {
    const auto tokens = json_.at("tokens").get<std::vector<TokenId>>();
    const auto engine = make_engine(model_, {.kv_type = KvType::kF32,
                                             .math = math,
                                             .context_tokens = static_cast<uint32_t>(tokens.size()),
                                             .chunk_tokens = chunk_tokens,
                                             .prompt_logits = true,
                                             .greedy_only = true});
    if (!engine) return {};
    const std::vector<float> result = logits(*engine, tokens);
    variants = engine->variants();
    return result;
  }

  std::filesystem::path stem_;
  nlohmann::json json_;
  std::shared_ptr<const Model> model_;
};

/// Kernels of gemm among `variants` with that word in their name.
size_t count_gemm(const std::set<std::string>& variants, std::string_view word) {
  return std::ranges::count_if(variants, [&](const std::string& name) {
    return name.rfind("gemm.", 0) == 0 && name.find(word) != std::string::npos;
  });
}

TEST_P(Reference, LogitsAgreeWithF32KvAndNoMatrixCores) {
  const auto expected = test::read_floats(stem_.string() + ".f32");
  std::set<std::string> used;
  const double error = test::nmse(logits_in(ops::Math::kF32, used), expected);
  EXPECT_LE(error, kF32Bound);
  RecordProperty("nmse", fmt::format("{:.2e}", error));
  EXPECT_EQ(count_gemm(used, ".matrix"), 0u);
  EXPECT_TRUE(used.contains("flash_attention.tile.f32"));
}

TEST_P(Reference, LogitsAgreeWithF16Kv) {
  const auto tokens = json_.at("tokens").get<std::vector<TokenId>>();
  const auto expected = test::read_floats(stem_.string() + ".f32");
  EXPECT_LE(test::nmse(logits(model_, tokens, {.kv_type = KvType::kF16, .math = ops::Math::kF32}),
                       expected),
            kF16KvBound);
}

TEST_P(Reference, LogitsAgreeWithActivationsOf8Bits) {
  if (!pipelines_->device()->plan().features.integer_dot || !find_spirv("gemm.q8_0.i8").ok()) {
    GTEST_SKIP() << "this device or build has no integer dot products";
  }
  const auto expected = test::read_floats(stem_.string() + ".f32");
  const ModelSource source = ModelSource::open(stem_.string() + ".gguf").value();
  const bool has_integers = std::ranges::any_of(source.file().tensors(), [](const auto& tensor) {
    return tensor.type->has_integers() && tensor.name != "token_embd.weight";
  });
  for (const ops::Math math : {ops::Math::kI8, ops::Math::kF32}) {
    std::set<std::string> used;
    const double error = test::nmse(logits_in(math, used), expected);
    EXPECT_LE(error, math == ops::Math::kI8 ? kI8Bound : kF32Bound);
    const bool integers = math == ops::Math::kI8 && has_integers;
    EXPECT_EQ(used.contains("quantize_x"), integers);
    EXPECT_EQ(
        std::ranges::any_of(used, [](const std::string& label) { return label.ends_with(".i8"); }),
        integers);
    RecordProperty("nmse_" + std::string(ops::math_name(math)), fmt::format("{:.2e}", error));
  }
}

/// Of a short prompt and what decodes after it, row by row, against what fp32 makes of the same tokens,
/// whose logits the first test knows. By what makes x or by a pass of its own, planes are the same.
TEST_P(Reference, DecodingInPlanesAgreesWithFp32) {
  const vk::DevicePlan& plan = pipelines_->device()->plan();
  const ModelSource source = ModelSource::open(stem_.string() + ".gguf").value();
  const bool has_planes = std::ranges::any_of(source.file().tensors(), [&](const auto& tensor) {
    return tensor.name != "token_embd.weight" && tensor.n_dims == 2 &&
           ops::gemv_runs(plan, ops::GemvKernel::kPlanes, *tensor.type);
  });
  if (!has_planes) GTEST_SKIP() << "no weights that are multiplied so by this device and build";
  const OnDevice with_planes(pipelines_->device());
  pipelines_->prefer(*vk::parse_tuning_rows("mine.tune", "gemv planes if math!=f32\nrms_norm wide",
                                            ops::tuning_tables()));
  auto tokens = json_.at("tokens").get<std::vector<TokenId>>();
  tokens.resize(ops::Gemv::kMaxRows);
  const std::vector<TokenId> prompt = tokens;
  const auto decode = [&](const FusionRules& rules, std::set<std::string>& used) {
    tokens = prompt;
    std::vector<float> result;
    const auto engine = make_engine(model_, {.kv_type = KvType::kF32,
                                             .math = ops::Math::kAuto,
                                             .fusion = rules,
                                             .context_tokens = 96,
                                             .prompt_logits = true,
                                             .greedy_only = true});
    const auto append = [&](uint32_t, std::span<const float> row) {
      result.insert(result.end(), row.begin(), row.end());
    };
    EXPECT_TRUE(engine
                    ->submit({.prompt = prompt,
                              .max_new_tokens = 64,
                              .on_logits = append,
                              .logits = GenerationRequest::Logits::kComputed})
                    .ok());
    while (!engine->idle()) {
      for (const StepEvent& event : step(*engine)) {
        if (event.token) tokens.push_back(*event.token);
      }
    }
    tokens.resize(result.size() / model_->program.n_vocab);  // of the last nothing was computed
    used = engine->variants();
    return result;
  };
  std::set<std::string> used;
  const std::vector<float> fused = decode(FusionRules(), used);
  const auto is_of_gemm = [](const std::string& label) { return label.starts_with("gemm."); };
  const auto is_of_planes = [](const std::string& label) {
    return label.starts_with("gemv.") && label.ends_with(".planes");
  };
  EXPECT_TRUE(std::ranges::any_of(used, is_of_planes));
  EXPECT_FALSE(std::ranges::any_of(used, is_of_gemm));
  EXPECT_GT(tokens.size(), 20u);
  const double error =
      test::nmse(fused, logits(model_, tokens, {.kv_type = KvType::kF32, .math = ops::Math::kF32}));
  EXPECT_LE(error, kPlanesBound);
  EXPECT_GT(error, 0);
  RecordProperty("nmse_planes", fmt::format("{:.2e}", error));
  FusionRules apart;
  apart.set(FusionRule::kPlanes, false);
  EXPECT_TRUE(decode(apart, used) == fused);
  EXPECT_TRUE(used.contains("quantize_x.planes"));
}

TEST_P(Reference, LogitsAgreeWithF16InputsOnMatrixCores) {
  if (!has_matrix_cores()) GTEST_SKIP() << "no matrix cores, or a glslc without them";
  const auto expected = test::read_floats(stem_.string() + ".f32");
  std::set<std::string> used;
  const double error = test::nmse(logits_in(ops::Math::kF16, used), expected);
  EXPECT_LE(error, f16_math_bound());
  RecordProperty("nmse_f16", fmt::format("{:.2e}", error));
  EXPECT_GT(count_gemm(used, ".matrix"), 0u);
  EXPECT_EQ(count_gemm(used, ".matrix"), count_gemm(used, ""));
  // Of latents it is that of heads' own keys, in the fp16 that matrices take.
  const bool latents = model_->program.state_groups[0].latent_dim != 0;
  EXPECT_TRUE(used.contains(latents ? "flash_attention.tile.f16.matrix"
                                    : "flash_attention.tile.f32.matrix"));
}

/// Token by token, with heads that share keys as rows of matrices.
TEST_P(Reference, LogitsAgreeWithRowsOnMatrixCores) {
  if (!has_matrix_cores()) GTEST_SKIP() << "no matrix cores, or a glslc without them";
  if (std::string_view(GetParam()).starts_with("quants/")) GTEST_SKIP() << "the same attention";
  const OnDevice by_matrices(pipelines_->device());
  pipelines_->prefer(*vk::parse_tuning_rows("mine.tune", "attention_row matrix use key_tile=32",
                                            ops::tuning_tables()));
  std::set<std::string> used;
  const double error =
      test::nmse(logits_in(ops::Math::kAuto, used, 1), test::read_floats(stem_.string() + ".f32"));
  EXPECT_LE(error, f16_math_bound());
  RecordProperty("nmse_rows", fmt::format("{:.2e}", error));
  // A latent has no such rows, and Gemma 4's attention stays fp32.
  const bool has_rows = model_->program.state_groups[0].latent_dim == 0 &&
                        std::string_view(GetParam()) != "families/gemma4";
  const auto is_row_of_matrices = [](const std::string& label) {
    return label.starts_with("flash_attention.row.") && label.ends_with(".matrix");
  };
  EXPECT_EQ(std::ranges::any_of(used, is_row_of_matrices), has_rows);
}

TEST_P(Reference, LongSequencesAgreeInChunks) {
  if (!json_.contains("long")) GTEST_SKIP() << "no long sequence";
  const nlohmann::json& sequence = json_.at("long");
  const auto tokens = sequence.at("tokens").get<std::vector<TokenId>>();
  const auto positions = sequence.at("positions").get<std::vector<size_t>>();
  const auto expected = test::read_floats(stem_.string() + ".long.f32");
  for (const uint32_t chunk : {64u, 512u}) {
    const auto all = logits(
        model_, tokens, {.kv_type = KvType::kF32, .math = ops::Math::kF32, .chunk_tokens = chunk});
    const size_t n_vocab = model_->program.n_vocab;
    ASSERT_EQ(all.size(), tokens.size() * n_vocab);
    std::vector<float> chosen;
    for (const size_t position : positions) {
      chosen.insert(chosen.end(), &all[position * n_vocab], &all[position * n_vocab] + n_vocab);
    }
    const double error = test::nmse(chosen, expected);
    EXPECT_LE(error, kF32Bound) << "chunks of " << chunk;
    RecordProperty(fmt::format("nmse_{}", chunk), fmt::format("{:.2e}", error));
  }
}

TEST_P(Reference, GreedyTokensAgreeWhereTheMarginIsClear) {
  if (!json_.contains("greedy")) GTEST_SKIP() << "no greedy reference";
  const nlohmann::json& greedy_json = json_.at("greedy");
  const auto prompt = greedy_json.at("prompt_tokens").get<std::vector<TokenId>>();
  const auto expected = greedy_json.at("generated").get<std::vector<TokenId>>();
  const auto margins = greedy_json.at("margin").get<std::vector<double>>();
  const auto engine =
      make_engine(model_, {.context_tokens = static_cast<uint32_t>(prompt.size() + expected.size()),
                           .greedy_only = true});
  ASSERT_NE(engine, nullptr);
  // After a token whose margin excuses another one the texts have nothing in common: go on from the
  // reference's own token, so that every one is compared.
  size_t n_excused = 0;
  for (size_t first = 0; first < expected.size();) {
    std::vector<TokenId> known = prompt;
    known.insert(known.end(), expected.begin(), expected.begin() + static_cast<ptrdiff_t>(first));
    const auto got = greedy(*engine, known, static_cast<uint32_t>(expected.size() - first));
    ASSERT_EQ(got.size(), expected.size() - first);
    size_t i = 0;
    while (i < got.size() && got[i] == expected[first + i]) ++i;
    first += i;
    if (first == expected.size()) break;
    EXPECT_LE(margins[first], kMarginThatCounts) << "token " << first;
    ++n_excused;
    ++first;
  }
  const size_t n_agreed = expected.size() - n_excused;
  fmt::print("{} of {} greedy tokens agree, {} excused by an unclear margin\n", n_agreed,
             expected.size(), n_excused);
  EXPECT_GE(n_agreed, kLeastAgreed);
}

constexpr const char* kMixtures[] = {
    "families/afmoe",         "families/bailingmoe2", "families/deepseek-v3", "families/deepseek2",
    "families/ernie4-5-moe",  "families/glm47-flash", "families/glm4moe",     "families/gpt-oss",
    "families/granitehybrid", "families/jamba",       "families/kimi-linear", "families/minimax-m2",
    "families/mistral4",      "families/mixtral",     "families/qwen35moe",   "families/qwen3next",
    "families/smallthinker",  "families/step35"};

std::string test_name(const ::testing::TestParamInfo<const char*>& info) {
  std::string name(info.param);
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

/// Models whose routers choose by the least difference: where two experts are as good, less precise
/// arithmetic takes the other one, and that row's logits are another model's. So logits in f16 are
/// compared where rows take the experts that they take in fp32.
class Experts : public Reference {
 protected:
  using Routes = std::vector<std::vector<uint32_t>>;  // of each router, as ops::Route writes them
  struct Run {
    std::vector<float> logits;
    Routes routes;
  };

  /// All tokens in one step, whose rows take `given` experts if there are any.
  Run run(const std::vector<TokenId>& tokens, ops::Math math, const Routes& given = {}) {
    const auto n_tokens = static_cast<uint32_t>(tokens.size());
    const auto engine =
        make_engine(model_, {.kv_type = KvType::kF32,
                             .math = math,
                             .context_tokens = n_tokens,
                             .token_budget = n_tokens,
                             .chunk_tokens = n_tokens,
                             .prefix_cache = false,  // which cuts prompts where it keeps states
                             .prompt_logits = true,
                             .greedy_only = true,
                             .routing = given.empty() ? Routing::kKept : Routing::kGiven});
    if (!engine) return {};
    const std::span<const vk::BufferRange> places = engine->routes();
    vk::Uploader uploader(engine->device());
    for (size_t i = 0; i < given.size(); ++i) {
      EXPECT_TRUE(uploader.write(places[i], std::span<const uint32_t>(given[i])).ok());
    }
    Run made{.logits = logits(*engine, tokens)};
    EXPECT_EQ(engine->scheduler().telemetry().steps, 1u);  // routes are those of the last
    for (const vk::BufferRange& place : places) {
      const std::vector<std::byte> bytes = *vk::download(engine->device(), place);
      made.routes.emplace_back(bytes.size() / sizeof(uint32_t));
      std::memcpy(made.routes.back().data(), bytes.data(), bytes.size());
    }
    return made;
  }

  /// With `weight`, a number's bits, in place of all weights.
  static Routes with_weights(Routes routes, uint32_t weight) {
    for (std::vector<uint32_t>& words : routes) {
      for (size_t i = 1; i < words.size(); i += 2) words[i] = weight;
    }
    return routes;
  }

  /// Rows of a router that took other experts, whatever their order.
  static size_t n_flips(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b,
                        size_t n_rows) {
    const size_t row_words = a.size() / n_rows;
    const auto experts = [&](const std::vector<uint32_t>& words, size_t row) {
      std::set<uint32_t> ids;
      for (size_t i = 0; i < row_words; i += 2) ids.insert(words[row * row_words + i]);
      return ids;
    };
    size_t n = 0;
    for (size_t row = 0; row < n_rows; ++row) n += experts(a, row) != experts(b, row) ? 1 : 0;
    return n;
  }

  static constexpr uint32_t kNaN = 0x7FC00000;
};

class GivenExperts : public Experts {};

TEST_P(GivenExperts, AreThoseThatRowsTake) {
  auto tokens = json_.at("tokens").get<std::vector<TokenId>>();
  tokens.resize(32);
  const Run free = run(tokens, ops::Math::kF32);
  ASSERT_FALSE(free.routes.empty());
  const Run same = run(tokens, ops::Math::kF32, with_weights(free.routes, kNaN));
  EXPECT_EQ(same.logits, free.logits);
  EXPECT_EQ(same.routes, free.routes);

  Routes others = free.routes;  // each row takes its neighbour's
  for (std::vector<uint32_t>& words : others) {
    std::rotate(words.begin(), words.begin() + static_cast<ptrdiff_t>(words.size() / 32),
                words.end());
  }
  const Run other = run(tokens, ops::Math::kF32, others);
  EXPECT_EQ(with_weights(other.routes, 0), with_weights(others, 0));
  EXPECT_GT(test::nmse(other.logits, free.logits), kI8Bound);
}

TEST_P(Experts, OfFp32GiveGoldenLogitsInF16) {
  if (!has_matrix_cores()) GTEST_SKIP() << "no matrix cores, or a glslc without them";
  struct Sequence {
    const char* name;
    nlohmann::json json;
    const char* file;
  };
  for (const auto& [name, json, file] :
       {Sequence{"short", json_, ".f32"}, Sequence{"long", json_.at("long"), ".long.f32"}}) {
    SCOPED_TRACE(name);
    const auto tokens = json.at("tokens").get<std::vector<TokenId>>();
    const auto positions = json.at("positions").get<std::vector<size_t>>();
    const auto golden = test::read_floats(stem_.string() + file);
    const Run fp32 = run(tokens, ops::Math::kF32);
    const Run free = run(tokens, ops::Math::kF16);
    const Run forced = run(tokens, ops::Math::kF16, with_weights(fp32.routes, kNaN));
    const size_t n_vocab = model_->program.n_vocab;
    ASSERT_EQ(forced.logits.size(), tokens.size() * n_vocab);
    std::vector<float> got;
    for (const size_t position : positions) {
      const auto first = forced.logits.begin() + static_cast<ptrdiff_t>(position * n_vocab);
      got.insert(got.end(), first, first + static_cast<ptrdiff_t>(n_vocab));
    }
    size_t flips = 0;
    size_t rows = 0;
    for (size_t i = 0; i < fp32.routes.size(); ++i) {
      flips += n_flips(free.routes[i], fp32.routes[i], tokens.size());
      EXPECT_EQ(n_flips(forced.routes[i], fp32.routes[i], tokens.size()), 0u);
      rows += tokens.size();
    }
    const double error = test::nmse(got, golden);
    const double from_fp32 = test::nmse(forced.logits, fp32.logits);
    fmt::print(
        "{}: nmse of golden logits {:.2e}, of fp32's {:.2e}; unforced {} of {} rows of routers "
        "flip, nmse {:.2e}\n",
        name, error, from_fp32, flips, rows, test::nmse(free.logits, fp32.logits));
    EXPECT_LE(error, kF16MathBound);
    EXPECT_LE(from_fp32, kF16MathBound);
    EXPECT_GT(from_fp32, 0);  // it was computed otherwise
    EXPECT_LE(flips, rows * 3 / 100);
  }
}

TEST(ExpertsOf, EveryMixtureThatIsKnownAreTested) {
  const auto folder = test::shared_path("reference/families");
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no shared data: " << folder;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".gguf") continue;
    const Result<Program> program = build_program(GgufFile::open(entry.path()).value());
    if (!program.ok()) continue;  // a family that is not known yet
    const bool mixture = std::ranges::any_of(
        program->ops, [](const Op& op) { return std::holds_alternative<op::Route>(op.what); });
    const std::string name = "families/" + entry.path().stem().string();
    EXPECT_EQ(std::ranges::count(kMixtures, name), mixture ? 1 : 0) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Experts, ::testing::ValuesIn(kMixtures), test_name);
// One whose router takes scores as they are, one with a bias and kinds, one with states.
INSTANTIATE_TEST_SUITE_P(Families, GivenExperts,
                         ::testing::Values("families/mixtral", "families/deepseek-v3",
                                           "families/qwen35moe"),
                         test_name);

// clang-format off
INSTANTIATE_TEST_SUITE_P(Families, Reference,
    ::testing::Values(
        "families/afmoe",
        "families/apertus",
        "families/bailingmoe2",
        "families/command-r",
        "families/deepseek-v3",
        "families/deepseek2",
        "families/ernie4-5-moe",
        "families/exaone4",
        "families/falcon-h1",
        "families/gemma",
        "families/gemma2",
        "families/gemma3",
        "families/gemma4",
        "families/glm47-flash",
        "families/glm4moe",
        "families/gpt-oss",
        "families/gpt2",
        "families/gptneox",
        "families/granite",
        "families/granitehybrid",
        "families/hunyuan-dense",
        "families/jamba",
        "families/kimi-linear",
        "families/lfm2",
        "families/llama",
        "families/llama-linear",
        "families/llama-nemo",
        "families/llama-tied",
        "families/llama-yarn",
        "families/llama3-rope",
        "families/minimax-m2",
        "families/mistral3",
        "families/mistral4",
        "families/mixtral",
        "families/nemotron-h",
        "families/phi3",
        "families/qwen2",
        "families/qwen3",
        "families/qwen35",
        "families/qwen35moe",
        "families/qwen3next",
        "families/qwen3vl",
        "families/seed-oss",
        "families/smallthinker",
        "families/smollm3",
        "families/stablelm",
        "families/step35"),
    test_name);
// clang-format on
INSTANTIATE_TEST_SUITE_P(Quants, Reference,
                         ::testing::Values("quants/F16", "quants/BF16", "quants/Q8_0",
                                           "quants/Q4_0", "quants/Q4_1", "quants/Q5_0",
                                           "quants/Q5_1", "quants/IQ4_NL", "quants/Q2_K",
                                           "quants/Q3_K", "quants/Q4_K", "quants/Q5_K",
                                           "quants/Q6_K", "quants/mix-Q4_K_M", "quants/IQ2_XS",
                                           "quants/IQ3_S", "quants/TQ2_0", "quants/MXFP4"),
                         test_name);

}  // namespace
}  // namespace pumice
