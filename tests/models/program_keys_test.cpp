// Metadata keys that change what a model computes are asked for by a family's page, or refused by
// name: which page asks for which follows from the pages, and is listed nowhere.
#include "models/program_keys.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "models/families.hpp"
#include "models/program_text.hpp"
#include "models/reference.hpp"
#include "models/synthetic.hpp"
#include "tests/models/small_file.hpp"

namespace pumice {
namespace {

using Number = std::variant<bool, uint32_t, float, const char*>;

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
    {"attention.sliding_window", 5u},
    {"attention.sliding_window_pattern", 4u},
    {"attention.temperature_length", 7u},
    {"attention.temperature_scale", 0.5f},
    {"attention.value_length_swa", 24u},
    {"attention.value_scale", 0.5f},
    {"attn_logit_softcapping", 2.0f},
    {"embedding_length_per_layer_input", 8u},
    {"embedding_scale", 2.0f},
    {"expert_count", 6u},
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

/// Others, for models that have the first anyway.
const std::map<std::string_view, Number> kOtherValues = {{"expert_gating_func", 1u},
                                                         {"expert_shared_count", 2u},
                                                         {"leading_dense_block_count", 2u},
                                                         {"attention.value_scale", 0.25f},
                                                         {"attention.sliding_window_pattern", 2u}};

/// Keys that pages leave out, as llama.cpp does; the number of shared experts beside their width.
const std::set<std::pair<std::string_view, std::string_view>> kLeftOut = {
    {"llama", "attention.sliding_window"}, {"llama", "attention.sliding_window_pattern"},
    {"qwen35moe", "expert_shared_count"},  {"qwen3next", "expert_shared_count"},
    {"phi3", "attention.sliding_window"},  {"phi3", "attention.sliding_window_pattern"}};

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

std::string text_of(const Number& number) {
  if (const auto* const flag = std::get_if<bool>(&number)) return *flag ? "true" : "false";
  if (const auto* const count = std::get_if<uint32_t>(&number)) return fmt::format("{}", *count);
  if (const auto* const value = std::get_if<float>(&number)) return fmt::format("{:#}", *value);
  return std::get<const char*>(number);
}

/// A small model of an architecture, with such keys too (SyntheticShape::extras).
class SmallModel {
 public:
  SmallModel(std::string_view architecture, const std::string& more = "") {
    SyntheticShape shape = find_synthetic_preset(architecture).value();
    if (architecture == "exaone4") shape.n_layers = 64;  // which tell that it has windows
    std::string extras(shape.extras);
    if (architecture == "deepseek2") {  // of which a key says something where there is YaRN
      extras += " rope.scaling.type=yarn rope.scaling.factor=4.0";
    }
    if (!more.empty()) extras += (extras.empty() ? "" : " ") + more;
    shape.extras = extras;
    const Result<SyntheticModel> made =
        SyntheticModel::create(shape, {.type = &weight_type("F32")});
    if (!made.ok()) {
      error_ = made.error().message;
      return;
    }
    source_ = ModelSource::synthetic(*made).value();
    program_ = build_program(*source_).value();
  }

  /// What is wrong with its metadata; empty: nothing.
  const std::string& error() const { return error_; }
  bool computes_as(const SmallModel& other) const {
    return program_text(*program_) == program_text(*other.program_) && logits() == other.logits();
  }

 private:
  std::vector<double> logits() const {
    std::vector<TokenId> tokens(12);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(i * 31 % 67);
    return reference_logits(*source_, *program_, tokens, {}).value().logits;
  }

  std::string error_;
  std::optional<ModelSource> source_;
  std::optional<Program> program_;
};

/// Keys that say something of experts, where there are some.
bool is_of_experts(std::string_view key) {
  return key != "expert_count" &&
         (key.starts_with("expert_") || key == "leading_dense_block_count");
}

/// What reads that is never causal, and refuses a file that says so (embedding_test.cpp).
bool is_of_masks(std::string_view key) { return key == "attention.causal"; }

class KeysOf : public ::testing::TestWithParam<std::string> {};

TEST_P(KeysOf, ChangeTheModelOrAreRefused) {
  const SmallModel plain(GetParam());
  ASSERT_EQ(plain.error(), "");
  for (const auto& [key, value] : kValues) {
    if (is_of_masks(key) || kLeftOut.contains({GetParam(), key})) continue;
    SCOPED_TRACE(key);
    const std::string experts = is_of_experts(key)
                                    ? "expert_count=4 expert_used_count=2 "
                                      "expert_feed_forward_length=128 +blk.2.ffn_gate_inp.weight "
                                    : "";
    const SmallModel usual(GetParam(), experts.substr(0, experts.find_last_not_of(' ') + 1));
    if (usual.error() != "") continue;  // it has no experts
    const auto changes = [&, key = key](const Number& number) {
      const SmallModel other(GetParam(), fmt::format("{}{}={}", experts, key, text_of(number)));
      return other.error() != "" || !other.computes_as(usual);
    };
    const auto other = kOtherValues.find(key);
    EXPECT_TRUE(changes(value) || (other != kOtherValues.end() && changes(other->second)));
  }
}

std::vector<std::string> architectures() {
  std::vector<std::string> names;
  for (const ModelFamily& family : model_families()) names.emplace_back(family.architecture);
  return names;
}

std::string family_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::ranges::replace(name, '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Families, KeysOf, ::testing::ValuesIn(architectures()), family_name);

}  // namespace
}  // namespace pumice
