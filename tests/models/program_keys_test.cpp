// Metadata keys that change what a model computes are read by a family's page, or refused by name.
#include "models/program_keys.hpp"

#include <gtest/gtest.h>

#include <algorithm>
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
    {"attention.key_length_swa", 8u},
    {"attention.max_alibi_bias", 8.0f},
    {"attention.output_scale", 0.5f},
    {"attention.scale", 0.5f},
    {"attention.shared_kv_layers", 2u},
    {"attention.sliding_window", 8u},
    {"attention.sliding_window_pattern", 3u},
    {"attention.temperature_length", 4u},
    {"attention.temperature_scale", 0.5f},
    {"attention.value_length_swa", 8u},
    {"attention.value_scale", 0.5f},
    {"attn_logit_softcapping", 2.0f},
    {"embedding_length_per_layer_input", 8u},
    {"embedding_scale", 2.0f},
    {"expert_count", 4u},
    {"expert_gating_func", 2u},
    {"expert_group_count", 2u},
    {"expert_shared_count", 1u},
    {"expert_weights_scale", 2.0f},
    {"expert_shared_feed_forward_length", 8u},
    {"final_logit_softcapping", 2.0f},
    {"interleave_moe_layer_step", 2u},
    {"leading_dense_block_count", 1u},
    {"logit_scale", 2.0f},
    {"nextn_predict_layers", 1u},
    {"residual_scale", 0.5f},
    {"rope.dimension_count_swa", 8u},
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

/// Readers whose form is none of the plain ones. Their golden files, or a test of their own, have
/// what they read; LFM2's experts are read as others' are.
const std::set<std::string_view> kHaveNoPlainForm = {
    "afmoe",     "gpt-oss",      "granitehybrid",  "jamba",  "kimi-linear",
    "lfm2moe",   "modern-bert",  "nemotron_h_moe", "qwen35", "qwen35moe",
    "qwen3next", "smallthinker", "step35"};

void set(GgufHeader& header, const std::string& key, const Number& number) {
  std::visit([&](auto value) { header.set(key, value); }, number);
}

/// What check_keys says of a file with that key alone.
std::string error_of(std::string_view architecture, const std::string& key, const Number& number) {
  GgufHeader header;
  set(header, std::string(architecture) + "." + key, number);
  const test::SmallFile file({}, std::move(header));
  const Status status = check_keys(file.file(), architecture);
  return status.ok() ? "" : status.error().message;
}

TEST(ProgramKeys, ThatAFamilyDoesNotReadAreRefusedByName) {
  ASSERT_EQ(kValues.size(), telling_keys().size());
  for (size_t i = 0; i < kValues.size(); ++i) {
    const TellingKey& key = telling_keys()[i];
    ASSERT_EQ(key.key, kValues[i].first);
    for (const ModelFamily& family : model_families()) {
      const std::string name = std::string(key.key);
      const std::string error = error_of(family.architecture, name, kValues[i].second);
      if (key.concerns(family.architecture)) {
        EXPECT_NE(error.find(std::string(family.architecture) + "." + name + ": "),
                  std::string::npos);
      } else {
        EXPECT_EQ(error, "");
      }
    }
  }
  EXPECT_EQ(error_of("llama", "attention.temperature_scale", 0.5f),
            "llama.attention.temperature_scale: 0.5 is not supported for this architecture; "
            "without it the model would be another one");
}

TEST(ProgramKeys, ThatSayWhatIsSoAnywayAreNoError) {
  EXPECT_EQ(error_of("qwen2", "logit_scale", 1.0f), "");
  EXPECT_EQ(error_of("qwen2", "expert_count", 0u), "");
  EXPECT_EQ(error_of("qwen2", "attention.causal", true), "");
  EXPECT_NE(error_of("qwen2", "attention.clamp_kqv", true), "");
  GgufHeader header;
  header.set("qwen2.context_length", 64u);
  header.set("qwen2.attention.sliding_window", 64u);
  const test::SmallFile file({}, std::move(header));
  EXPECT_TRUE(check_keys(file.file(), "qwen2").ok());
}

TEST(ProgramKeys, ThatAreNoNumbersAreRefused) {
  GgufHeader header;
  header.set("qwen2.attention.sliding_window_pattern", "no pattern");
  const test::SmallFile file({}, std::move(header));
  EXPECT_FALSE(check_keys(file.file(), "qwen2").ok());
}

test::PlainForm form_of(std::string_view architecture) {
  for (test::PlainForm& form : test::forms_without_a_file()) {
    if (form.architecture != architecture) continue;
    if (architecture == "gemma4" && form.experts.n == 0) continue;  // it reads experts' keys too
    if (architecture == "llama") form.experts.n = 8;                // it reads their keys too
    return std::move(form);
  }
  test::PlainForm form;
  form.architecture = architecture;
  if (architecture.starts_with("gemma")) {
    form.n_layers = 3;
    form.norms_after = true;
    form.windows = {20, 20, 20};
  }
  if (architecture == "gemma-embedding") form.output = test::PlainForm::Output::kTied;  // none
  if (architecture == "gemma3" || architecture == "gemma-embedding" ||
      architecture == "hunyuan-dense") {
    form.qk_norm = test::PlainForm::QkNorm::kHeads;
  }
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
  for (size_t i = 0; i < kValues.size(); ++i) {
    const auto& readers = telling_keys()[i].readers;
    if (std::ranges::find(readers, GetParam()) == readers.end() || is_of_masks(kValues[i].first)) {
      continue;
    }
    SCOPED_TRACE(kValues[i].first);
    const auto changes = [&](const Number& number) {
      test::PlainForm form = usual;
      form.keys[std::string(kValues[i].first)] = number;
      const Result<std::vector<double>> after = logits_of(form);
      return !after.ok() || *after != *before;
    };
    const auto other = kOtherValues.find(kValues[i].first);
    EXPECT_TRUE(changes(kValues[i].second) ||
                (other != kOtherValues.end() && changes(other->second)));
  }
}

/// All architectures that the table names as readers of something else than of masks.
std::vector<std::string> readers() {
  std::vector<std::string> names;
  for (const TellingKey& key : telling_keys()) {
    if (is_of_masks(key.key)) continue;
    for (const std::string_view reader : key.readers) {
      if (!reader.empty() && !kHaveNoPlainForm.contains(reader)) names.emplace_back(reader);
    }
  }
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

std::string reader_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::ranges::replace(name, '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Readers, KeysOf, ::testing::ValuesIn(readers()), reader_name);

}  // namespace
}  // namespace pumice
