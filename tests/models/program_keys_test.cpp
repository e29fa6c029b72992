// Metadata keys that change what a model computes are asked for by a family's page, or refused by
// name: which page asks for which follows from the pages, and is listed nowhere.
#include "models/program_keys.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "models/families.hpp"
#include "models/reference.hpp"
#include "tests/models/plain_transformer.hpp"

namespace pumice {
namespace {

using Number = test::PlainForm::Number;

/// A value of each key that would change any model.
const std::vector<std::pair<std::string_view, Number>> kValues = {
    {"attention.causal", false},
    {"attention.chunk_size", 8u},
    {"attention.clamp_kqv", 0.1f},
    {"attention.key_length_swa", 104u},
    {"attention.max_alibi_bias", 8.0f},
    {"attention.output_scale", 0.5f},
    {"attention.scale", 0.5f},
    {"attention.shared_kv_layers", 2u},
    {"attention.sliding_window", 8u},
    {"attention.sliding_window_pattern", 3u},
    {"attention.temperature_length", 4u},
    {"attention.temperature_scale", 0.5f},
    {"attention.value_length_swa", 24u},
    {"attention.value_scale", 0.5f},
    {"attn_logit_softcapping", 2.0f},
    {"embedding_length_per_layer_input", 8u},
    {"embedding_scale", 2.0f},
    {"expert_count", 4u},
    {"expert_gating_func", 2u},
    {"expert_group_count", 2u},
    {"expert_shared_count", 1u},
    {"expert_shared_feed_forward_length", 8u},
    {"expert_weights_scale", 2.0f},
    {"final_logit_softcapping", 2.0f},
    {"interleave_moe_layer_step", 2u},
    {"leading_dense_block_count", 1u},
    {"logit_scale", 2.0f},
    {"nextn_predict_layers", 1u},
    {"residual_scale", 0.5f},
    {"rope.dimension_count_swa", 4u},
    {"rope.freq_base_swa", 700.0f},
    {"rope.scaling.alpha", 4.0f},
    {"rope.scaling.yarn_attn_factor", 0.5f},
    {"rope.scaling.yarn_log_multiplier", 0.5f},
    {"router_logit_softcapping", 2.0f},
    {"swiglu_clamp_exp", 2.0f},
    {"swiglu_clamp_shexp", 2.0f},
};

/// Others, for forms that have the first anyway.
const std::map<std::string_view, Number> kOtherValues = {{"expert_count", 7u},
                                                         {"expert_gating_func", 1u},
                                                         {"expert_shared_count", 2u},
                                                         {"interleave_moe_layer_step", 1u},
                                                         {"leading_dense_block_count", 2u},
                                                         {"nextn_predict_layers", 0u},
                                                         {"residual_scale", 0.25f}};

/// Families whose form is none of the plain ones. Their golden files have what they read.
const std::set<std::string_view> kHaveNoPlainForm = {
    "afmoe",         "apertus",        "bert",        "falcon-h1", "gpt-oss", "gpt2",
    "granitehybrid", "jamba",          "kimi-linear", "lfm2",      "lfm2moe", "modern-bert",
    "nemotron_h",    "nemotron_h_moe", "nomic-bert",  "phi3",      "qwen35",  "qwen35moe",
    "qwen3next",     "smallthinker",   "step35"};

/// Keys that pages leave out, as llama.cpp does.
const std::set<std::pair<std::string_view, std::string_view>> kLeftOut = {
    {"llama", "attention.sliding_window"}, {"llama", "attention.sliding_window_pattern"}};

void set(GgufHeader& header, const std::string& key, const Number& number) {
  std::visit([&](auto value) { header.set(key, value); }, number);
}

/// What check_keys says of a file with that key alone, of whose keys a page asks for some.
std::string error_of(const std::string& key, const Number& number,
                     const std::function<void(const Metadata&)>& page = {}) {
  GgufHeader header;
  set(header, "any." + key, number);
  const test::SmallFile file({}, std::move(header));
  const ModelSource source = file.file();
  const Metadata metadata(source, "any");
  if (page) page(metadata);
  const Status status = check_keys(metadata);
  return status.ok() ? "" : status.error().message;
}

TEST(ProgramKeys, ThatNobodyAskedForAreRefusedByName) {
  ASSERT_EQ(kValues.size(), telling_keys().size());
  for (size_t i = 0; i < kValues.size(); ++i) {
    const std::string name(telling_keys()[i].key);
    ASSERT_EQ(name, kValues[i].first);
    const Number& value = kValues[i].second;
    EXPECT_NE(error_of(name, value).find("any." + name + ": "), std::string::npos);
    EXPECT_EQ(error_of(name, value, [&](const Metadata& m) { (void)m.has(name); }), "");
    EXPECT_EQ(error_of(name, value, [&](const Metadata& m) { (void)m.get<double>(name); }), "");
    EXPECT_EQ(error_of(name, value, [&](const Metadata& m) { (void)m.get_or<double>(name, 1); }),
              "");
    EXPECT_EQ(error_of(name, value, [&](const Metadata& m) { (void)m.get_vector<float>(name); }),
              "");
    EXPECT_EQ(error_of(name, value, [&](const Metadata& m) { m.leave_out({name}); }), "");
    EXPECT_NE(error_of(name, value, [](const Metadata& m) { (void)m.has("block_count"); }), "");
  }
  EXPECT_EQ(error_of("attention.temperature_scale", 0.5f),
            "any.attention.temperature_scale: 0.5 is not supported for this architecture; "
            "without it the model would be another one");
}

TEST(ProgramKeys, ThatSayWhatIsSoAnywayAreNoError) {
  EXPECT_EQ(error_of("logit_scale", 1.0f), "");
  EXPECT_EQ(error_of("expert_count", 0u), "");
  EXPECT_EQ(error_of("attention.causal", true), "");
  EXPECT_NE(error_of("attention.clamp_kqv", true), "");
  GgufHeader header;
  header.set("qwen2.context_length", 64u);
  header.set("qwen2.attention.sliding_window", 64u);
  const test::SmallFile file({}, std::move(header));
  const ModelSource source = file.file();
  EXPECT_TRUE(check_keys(Metadata(source, "qwen2")).ok());
}

TEST(ProgramKeys, ThatAreNoNumbersAreRefused) {
  EXPECT_NE(error_of("attention.sliding_window_pattern", "no pattern"), "");
}

test::PlainForm form_of(std::string_view architecture) {
  for (test::PlainForm& form : test::forms_without_a_file()) {
    if (form.architecture != architecture) continue;
    if (architecture == "gemma4" && form.experts.n == 0) continue;  // it reads experts' keys too
    if (architecture == "llama") form.experts.n = 8;                // it reads their keys too
    if (architecture == "deepseek2") {                              // and of a temperature
      form.keys["attention.temperature_length"] = 8u;
      form.keys["attention.temperature_scale"] = 0.25f;
    }
    return std::move(form);
  }
  test::PlainForm form;
  form.architecture = architecture;
  if (architecture == "gemma2" || architecture == "gemma3" || architecture == "gemma-embedding") {
    form.n_layers = 3;
    form.norms_after = true;
    form.windows = {20, 20, 20};
  }
  if (architecture == "gemma-embedding") form.output = test::PlainForm::Output::kTied;  // none
  if (architecture == "gemma3" || architecture == "gemma-embedding" ||
      architecture == "hunyuan-dense" || architecture.starts_with("qwen3")) {
    form.qk_norm = test::PlainForm::QkNorm::kHeads;
  }
  if (architecture == "granite") form.experts.n = 8;  // likewise
  form.qkv_bias = architecture == "qwen2" || architecture == "seed_oss";
  if (architecture == "seed_oss") form.ffn_norm = "post_attention_norm";
  if (architecture == "bailingmoe2" || architecture == "minimax-m2") {
    form.fused_qkv = architecture == "bailingmoe2";
    form.qk_norm = form.fused_qkv ? test::PlainForm::QkNorm::kHeads : test::PlainForm::QkNorm::kRow;
    form.experts = {.n = 8, .sigmoid = true, .biased = true};
  }
  if (architecture == "mistral3") {
    form.keys = {{"rope.scaling.factor", 4.0f},
                 {"rope.scaling.original_context_length", 16u},
                 {"attention.temperature_scale", 0.1f}};
  }
  return form;
}

/// Logits of a model, or what is wrong with its file.
Result<std::vector<double>> logits_of(const test::PlainForm& form) {
  const test::PlainTransformer model(form);
  GgufHeader header = model.header();
  if (form.architecture == "mistral3") header.set("mistral3.rope.scaling.type", "yarn");
  const test::SmallFile file(model.tensors(), std::move(header));
  PUMICE_TRY(const Program program, build_program(file.file()));
  std::vector<TokenId> tokens(40);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(i * 31 % 67);
  PUMICE_TRY(ReferenceLogits got, reference_logits(file.file(), program, tokens, {}));
  return std::move(got.logits);
}

/// What reads that is never causal, and refuses a file that says so (embedding_test.cpp).
bool is_of_masks(std::string_view key) { return key == "attention.causal"; }

class KeysOf : public ::testing::TestWithParam<std::string> {};

TEST_P(KeysOf, ChangeTheModelOrAreRefused) {
  const test::PlainForm usual = form_of(GetParam());
  const Result<std::vector<double>> before = logits_of(usual);
  ASSERT_TRUE(before.ok()) << before.error().message;
  for (const auto& [key, value] : kValues) {
    if (is_of_masks(key) || kLeftOut.contains({GetParam(), key})) continue;
    SCOPED_TRACE(key);
    const auto changes = [&](const Number& number) {
      test::PlainForm form = usual;
      form.keys[std::string(key)] = number;
      const Result<std::vector<double>> after = logits_of(form);
      return !after.ok() || *after != *before;
    };
    const auto other = kOtherValues.find(key);
    EXPECT_TRUE(changes(value) || (other != kOtherValues.end() && changes(other->second)));
  }
}

std::vector<std::string> with_plain_forms() {
  std::vector<std::string> names;
  for (const ModelFamily& family : model_families()) {
    if (!kHaveNoPlainForm.contains(family.architecture)) names.emplace_back(family.architecture);
  }
  return names;
}

std::string family_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::ranges::replace(name, '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Families, KeysOf, ::testing::ValuesIn(with_plain_forms()), family_name);

}  // namespace
}  // namespace pumice
