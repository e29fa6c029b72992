#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "models/decoder.hpp"
#include "models/families.hpp"
#include "models/lowering.hpp"
#include "models/model_source.hpp"
#include "models/synthetic.hpp"
#include "models/synthetic_vocabulary.hpp"
#include "models/vocabulary_loader.hpp"
#include "tests/paths.hpp"
#include "text/detokenizer.hpp"

namespace pumice {
namespace {

class Synthetic : public ::testing::Test {
 protected:
  Synthetic() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    path_ = std::filesystem::temp_directory_path() /
            fmt::format("pumice-{}-{}.gguf", test->name(), ::getpid());
  }
  ~Synthetic() override { std::filesystem::remove(path_); }

  static SyntheticModel make(const SyntheticShape& shape, const SyntheticOptions& options = {}) {
    Result<SyntheticModel> model = SyntheticModel::create(shape, options);
    EXPECT_TRUE(model.ok()) << model.error().message;
    return std::move(model).value();
  }
  static SyntheticShape preset(std::string_view name) {
    return find_synthetic_preset(name).value();
  }
  GgufFile write(const SyntheticModel& model) {
    const Status status = write_synthetic_model(model, path_);
    EXPECT_TRUE(status.ok()) << status.error().message;
    Result<GgufFile> file = GgufFile::open(path_);
    EXPECT_TRUE(file.ok()) << file.error().message;
    return std::move(file).value();
  }
  static std::string_view type_of(const SyntheticModel& model, std::string_view tensor) {
    for (const SyntheticTensor& candidate : model.tensors()) {
      if (candidate.name == tensor) return candidate.type->name;
    }
    return "none";
  }

  std::filesystem::path path_;
};

TEST_F(Synthetic, PresetsHaveExactlyTheParametersOfTheModelsTheyStandFor) {
  const std::pair<std::string_view, uint64_t> published[] = {
      {"llama-1b", 1'235'814'400},     {"llama-3b", 3'212'749'824},
      {"llama-8b", 8'030'261'248},     {"phi4-mini", 3'836'021'760},
      {"gemma3-4b", 3'880'263'168},    {"qwen3-8b", 8'190'735'360},
      {"gpt-oss-20b", 20'914'757'184}, {"qwen3-30b-a3b", 30'532'122'624},
      {"lfm2-1.2b", 1'170'340'608},    {"qwen3.5-like", 1'881'825'088},
      {"moe-8x7b", 46'702'792'704}};
  for (const auto& [name, expected] : published) {
    const SyntheticModel model = make(preset(name));
    uint64_t n = 0;
    for (const SyntheticTensor& tensor : model.tensors()) {
      if (!tensor.name.starts_with("rope_")) n += tensor.n_elements();  // follow from the shape
    }
    EXPECT_EQ(n, expected) << name;
  }
}

/// "0-4,7"
std::string ranges(const std::vector<uint32_t>& layers) {
  std::string text;
  for (size_t i = 0; i < layers.size();) {
    size_t end = i + 1;
    while (end < layers.size() && layers[end] == layers[end - 1] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", layers[i]);
    if (end - i > 1) text += fmt::format("-{}", layers[end - 1]);
    i = end;
  }
  return text;
}

/// A line for tensors of layers that are made alike: type, shape, deviation, mean.
std::string listing(const SyntheticModel& model) {
  std::map<std::string, std::vector<uint32_t>> lines;
  for (const SyntheticTensor& tensor : model.tensors()) {
    std::string name = tensor.name;
    std::vector<uint32_t> layer;
    if (name.starts_with("blk.")) {
      const size_t end = name.find('.', 4);
      layer.push_back(static_cast<uint32_t>(std::stoul(name.substr(4, end - 4))));
      name.replace(4, end - 4, "{}");
    }
    std::vector<uint32_t>& layers =
        lines[fmt::format("{} {} {} {} {}{}", name, tensor.type->name, fmt::join(tensor.dims, "x"),
                          tensor.deviation, tensor.mean, tensor.values.empty() ? "" : " given")];
    layers.insert(layers.end(), layer.begin(), layer.end());
  }
  std::string text(model.shape().name);
  for (const auto& [line, layers] : lines) {
    text += fmt::format("\n  {}{}", line, layers.empty() ? "" : " of " + ranges(layers));
  }
  return text + "\n";
}

/// The lists were written by hand once, for each of these architectures.
TEST_F(Synthetic, TensorsOfModelsThatPeopleRunAreThoseThatWereListedByHand) {
  std::ifstream file(test::source_path("tests/models/synthetic_presets.txt"));
  const std::string expected{std::istreambuf_iterator<char>(file), {}};
  ASSERT_FALSE(expected.empty());
  std::string all;
  for (const SyntheticShape& shape : synthetic_presets()) {
    if (shape.name != shape.architecture) all += listing(make(shape));
  }
  EXPECT_EQ(all, expected);
}

TEST_F(Synthetic, EveryArchitectureIsAPreset) {
  for (const ModelFamily& family : model_families()) {
    SCOPED_TRACE(family.architecture);
    const Result<SyntheticModel> model =
        SyntheticModel::parse(fmt::format("{}:q8_0", family.architecture));
    ASSERT_TRUE(model.ok()) << model.error().message;
    const ModelSource source = ModelSource::synthetic(*model).value();
    const Result<Program> program = build_program(source);  // its tensors and no others
    ASSERT_TRUE(program.ok()) << program.error().message;
    EXPECT_EQ(program->architecture, family.architecture);
    EXPECT_EQ(program->layers.size(), 3u);
    EXPECT_TRUE(lower(*program).ok());
  }
}

TEST_F(Synthetic, ExtrasAreKeysListsByLayerAndTensors) {
  const SyntheticModel model = make({.n_layers = 3,
                                     .architecture = "granitehybrid",
                                     .extras = "attention.head_count_kv=0,2 ssm.inner_size=256 "
                                               "ssm.time_step_rank=4 ssm.group_count=2 "
                                               "ssm.state_size=16 ssm.conv_kernel=4 "
                                               "rope.scaling.finetuned=false @of.all=0.5 "
                                               "rope.scaling.type=none"});
  const ModelSource source = ModelSource::synthetic(model).value();
  const GgufFile& file = source.file();
  EXPECT_EQ(file.get_vector<uint32_t>("granitehybrid.attention.head_count_kv", 8).value(),
            (std::vector<uint32_t>{0, 2, 0}));
  EXPECT_EQ(file.get<bool>("granitehybrid.rope.scaling.finetuned").value(), false);
  EXPECT_EQ(file.get<float>("of.all").value(), 0.5f);
  EXPECT_EQ(file.get<std::string_view>("granitehybrid.rope.scaling.type").value(), "none");
  EXPECT_NE(file.find_tensor("blk.0.ssm_a"), nullptr);
  EXPECT_NE(file.find_tensor("blk.1.attn_q.weight"), nullptr);
  EXPECT_NE(file.find_tensor("blk.2.ssm_a"), nullptr);
  const SyntheticModel bert = make({.architecture = "bert",
                                    .extras = "attention.layer_norm_epsilon=1e-5 "
                                              "+token_types.weight:256x2"});
  EXPECT_EQ(type_of(bert, "token_types.weight"), "F32");
  EXPECT_EQ(type_of(bert, "output.weight"), "none");  // nothing reads it
}

TEST_F(Synthetic, DeltaNetsAreComputedInFp32UnlessAskedForOtherwise) {
  const auto math_of = [](std::string_view name, ops::Math math) {
    const SyntheticModel model = make(preset(name));
    const ModelSource source = ModelSource::synthetic(model).value();
    return product_math(build_program(source).value(), math);
  };
  EXPECT_EQ(math_of("qwen3.5-like", ops::Math::kAuto), ops::Math::kF32);
  EXPECT_EQ(math_of("qwen3.5-like", ops::Math::kF16), ops::Math::kF16);
  EXPECT_EQ(math_of("lfm2-1.2b", ops::Math::kAuto), ops::Math::kAuto);
}

TEST_F(Synthetic, AFileOfEveryTypeIsAModel) {
  for (const WeightType& type : weight_types()) {
    if (!type.has_codec()) continue;
    const GgufFile file = write(make(preset("tiny"), {.type = &type}));
    EXPECT_EQ(file.find_tensor("blk.1.ffn_down.weight")->type, &type);
    const Result<Program> program = build_program(file);
    ASSERT_TRUE(program.ok()) << type.name << ": " << program.error().message;
    EXPECT_TRUE(lower(*program).ok()) << type.name;
    EXPECT_EQ(program->layers.size(), 2u);
    EXPECT_EQ(embedding_width(*program), 256u);
    EXPECT_EQ(program->state_groups[0].n_kv_heads, 2u);
    EXPECT_EQ(program->state_groups[0].head_dim, 64u);
    EXPECT_EQ(program->n_vocab, 512u);
    EXPECT_EQ(program->context_length, 2048u);
  }
}

TEST_F(Synthetic, LongContextModelsCarryTheirRotaryDivisors) {
  SyntheticShape shape = preset("llama-1b");
  shape.n_layers = 1;
  shape.n_vocab = 512;
  const Result<Program> program = build_program(write(make(shape)));
  ASSERT_TRUE(program.ok()) << program.error().message;
  const std::vector<double> divisors(program->ropes[0].freq_divisors.begin(),
                                     program->ropes[0].freq_divisors.end());
  ASSERT_EQ(divisors.size(), 32u);
  EXPECT_EQ(divisors.front(), 1);
  EXPECT_EQ(divisors.back(), 32);
  EXPECT_TRUE(std::is_sorted(divisors.begin(), divisors.end()));
}

TEST_F(Synthetic, FilesDependOnNothingButShapeTypeAndSeed) {
  const SyntheticModel model = make(preset("tiny"), {.seed = 5});
  const GgufFile file = write(model);
  for (const SyntheticTensor& tensor : model.tensors()) {
    std::vector<std::byte> expected(tensor.n_bytes());
    model.fill(tensor, 0, expected);
    std::vector<std::byte> written(expected.size());
    ASSERT_TRUE(file.read(*file.find_tensor(tensor.name), 0, written).ok());
    EXPECT_EQ(written, expected) << tensor.name;
  }
  const SyntheticModel other = make(preset("tiny"), {.seed = 6});
  std::vector<std::byte> one(144);
  std::vector<std::byte> two(144);
  model.fill(model.tensors()[0], 0, one);
  other.fill(other.tensors()[0], 0, two);
  EXPECT_NE(one, two);
}

TEST_F(Synthetic, TheOutputMatrixIsQ6KBelowThatUnlessPure) {
  const auto output = [&](std::string_view preset_name, std::string_view type, bool pure) {
    const SyntheticShape shape = preset(preset_name);
    return type_of(make(shape, {.type = &weight_type(type), .pure = pure}),
                   shape.tied ? "token_embd.weight" : "output.weight");
  };
  EXPECT_EQ(output("llama-8b", "Q4_K", false), "Q6_K");
  EXPECT_EQ(output("llama-8b", "Q5_1", false), "Q6_K");
  EXPECT_EQ(output("llama-8b", "Q8_0", false), "Q8_0");
  EXPECT_EQ(output("llama-8b", "F16", false), "F16");
  EXPECT_EQ(output("llama-8b", "Q4_K", true), "Q4_K");
  EXPECT_EQ(output("llama-1b", "Q2_K", false), "Q6_K");
  EXPECT_EQ(type_of(make(preset("llama-8b")), "token_embd.weight"), "Q4_K");
}

TEST_F(Synthetic, RowsThatAreNoMultipleOfABlockGetTheFallbackType) {
  const auto type_at_width = [&](uint32_t width, std::string_view type) {
    return type_of(
        make({.n_embd = width, .n_heads = 1, .n_kv_heads = 1}, {.type = &weight_type(type)}),
        "blk.0.attn_q.weight");
  };
  const std::map<std::string_view, std::string_view> fallbacks = {
      {"Q2_K", "Q4_0"}, {"Q3_K", "Q4_0"},  {"Q4_K", "Q5_0"},    {"Q5_K", "Q5_1"},
      {"Q6_K", "Q8_0"}, {"TQ2_0", "Q4_0"}, {"IQ2_S", "IQ4_NL"}, {"IQ4_XS", "IQ4_NL"}};
  for (const auto& [type, fallback] : fallbacks) {
    EXPECT_EQ(type_at_width(512, type), type);
    EXPECT_EQ(type_at_width(96, type), fallback);
    EXPECT_EQ(type_at_width(40, type), "F16");
  }
  EXPECT_EQ(type_at_width(40, "Q8_0"), "F16");
  EXPECT_EQ(type_at_width(40, "F32"), "F32");
}

TEST_F(Synthetic, ExpertsAreWrittenAsOthersReadThem) {
  const GgufFile file = write(make(preset("moe-tiny")));
  EXPECT_EQ(file.get<uint32_t>("llama.expert_count").value(), 4u);
  EXPECT_EQ(file.get<uint32_t>("llama.expert_used_count").value(), 2u);
  using Dims = std::array<uint64_t, 4>;
  EXPECT_EQ(file.find_tensor("blk.0.ffn_gate_inp.weight")->dims, (Dims{256, 4, 1, 1}));
  EXPECT_EQ(file.find_tensor("blk.0.ffn_gate_inp.weight")->type->name, "F32");
  EXPECT_EQ(file.find_tensor("blk.0.ffn_gate_exps.weight")->dims, (Dims{256, 256, 4, 1}));
  EXPECT_EQ(file.find_tensor("blk.1.ffn_down_exps.weight")->type->name, "Q4_K");
  EXPECT_EQ(file.find_tensor("blk.0.ffn_gate.weight"), nullptr);
  const Result<Program> program = build_program(file);
  ASSERT_TRUE(program.ok()) << program.error().message;
  EXPECT_TRUE(lower(*program).ok());
}

TEST_F(Synthetic, TheVocabularyEncodesAnyTextAndBack) {
  for (const uint32_t n_vocab : {kMinSyntheticVocabulary, 512u, 32000u, 128256u}) {
    SyntheticShape shape = preset("tiny");
    shape.n_vocab = n_vocab;
    const GgufFile file = write(make(shape));
    const Result<Tokenizer> tokenizer = load_tokenizer(file);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    const Vocabulary& vocabulary = tokenizer->vocabulary();
    EXPECT_EQ(vocabulary.size(), n_vocab);
    for (TokenId id = 0; id < n_vocab; ++id) ASSERT_EQ(vocabulary.find(vocabulary.text(id)), id);
    const std::string text = "The quick brown fox, grüße, 山 and\n42!";
    const std::vector<TokenId> tokens = tokenizer->encode(text).value();
    EXPECT_EQ(tokens.front(), 1u);
    std::string back;
    for (const TokenId token : tokens) tokenizer->append_bytes(token, false, back);
    EXPECT_EQ(back, " " + text);
  }
}

TEST_F(Synthetic, LargerVocabulariesMergeLetters) {
  SyntheticShape shape = preset("tiny");
  shape.n_vocab = 128256;
  const GgufFile file = write(make(shape));
  const Tokenizer tokenizer = load_tokenizer(file).value();
  EXPECT_EQ(tokenizer.encode("hello there").value().size(), 1u + 2 + 2);
}

TEST_F(Synthetic, WritingThatIsStoppedLeavesNothing) {
  const SyntheticModel model = make(preset("tiny"));
  const Status status = write_synthetic_model(model, path_, [](uint64_t, uint64_t) -> Status {
    return make_error(ErrorCode::kCancelled, "stop");
  });
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kCancelled);
  for (const auto& entry : std::filesystem::directory_iterator(path_.parent_path())) {
    EXPECT_FALSE(entry.path().string().starts_with(path_.string())) << entry.path();
  }
}

TEST_F(Synthetic, ProgressEndsAtTheWholeModel) {
  const SyntheticModel model = make(preset("tiny"));
  uint64_t last = 0;
  const Status status =
      write_synthetic_model(model, path_, [&](uint64_t done, uint64_t total) -> Status {
        EXPECT_GE(done, last);
        EXPECT_EQ(total, model.data_bytes());
        last = done;
        return {};
      });
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(last, model.data_bytes());
}

TEST_F(Synthetic, AModelLargerThanTheDiskIsRefusedBeforeAnythingIsWritten) {
  SyntheticShape shape = preset("moe-8x7b");
  shape.n_layers = 1000;
  const Status status = write_synthetic_model(make(shape, {.type = &weight_type("F32")}), path_);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kDoesNotFit);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(Synthetic, ASourceOfItIsTheFileWithoutAFile) {
  const SyntheticModel model = make(preset("tiny"));
  const GgufFile file = write(model);
  const Result<ModelSource> source = ModelSource::synthetic(model);
  ASSERT_TRUE(source.ok()) << source.error().message;
  const GgufFile& header = source->file();
  ASSERT_EQ(header.tensors().size(), file.tensors().size());
  ASSERT_EQ(header.metadata().size(), file.metadata().size());
  for (const GgufValue& value : file.metadata()) {
    EXPECT_EQ(header.find(value.key)->describe(), value.describe());
  }
  for (const GgufTensor& tensor : file.tensors()) {
    std::vector<std::byte> bytes(tensor.n_bytes - tensor.type->block_bytes);
    std::vector<std::byte> written(bytes.size());
    ASSERT_TRUE(source->read(*header.find_tensor(tensor.name), 1, bytes).ok());
    ASSERT_TRUE(file.read(tensor, tensor.type->block_bytes, written).ok());
    EXPECT_EQ(written, bytes) << tensor.name;
  }
}

TEST_F(Synthetic, ModelsAreNamedByPresetAndType) {
  const auto type = [](std::string_view text) {
    const Result<SyntheticModel> model = SyntheticModel::parse(text);
    if (!model.ok()) return model.error().message;
    return fmt::format("{} {} {}", model->tensors()[1].type->name, model->tensors()[2].type->name,
                       model->tensors().back().type->name);
  };
  EXPECT_EQ(type("tiny"), "F32 Q4_K Q6_K");
  EXPECT_EQ(type("tiny:q8_0"), "F32 Q8_0 Q8_0");
  EXPECT_EQ(type("tiny:Q4_K:pure"), "F32 Q4_K Q4_K");
  EXPECT_NE(type("large").find("no preset 'large' (known: tiny"), std::string::npos);
  EXPECT_NE(type("tiny:q9").find("no weight type 'Q9' (known: F32"), std::string::npos);
  EXPECT_NE(type("tiny:").find("no weight type ''"), std::string::npos);
  EXPECT_NE(type("tiny:q4_k:impure").find("expected preset:type"), std::string::npos);
  EXPECT_NE(type("tiny:q4_k:pure:1").find("expected preset:type"), std::string::npos);
}

TEST_F(Synthetic, ShapesThatMakeNoModelAreRefused) {
  const auto refused = [](SyntheticShape shape, const WeightType& type = weight_type("F16")) {
    const Result<SyntheticModel> model = SyntheticModel::create(shape, {.type = &type});
    return !model.ok() && model.error().code == ErrorCode::kInvalidArgument;
  };
  EXPECT_FALSE(refused({}));
  EXPECT_TRUE(refused({.n_layers = 0}));
  EXPECT_TRUE(refused({.n_embd = 250}));
  EXPECT_TRUE(refused({.n_kv_heads = 3}));
  EXPECT_TRUE(refused({.n_experts = 4}));
  EXPECT_TRUE(refused({}, weight_type("NVFP4")));
  EXPECT_FALSE(find_synthetic_preset("llama-2b").ok());
}

}  // namespace
}  // namespace pumice
