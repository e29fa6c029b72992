// What --explain holds dispatches against: each product is of the part that its name says.
#include "bench/explain.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <variant>

#include "models/families.hpp"
#include "models/lowering.hpp"
#include "models/model_source.hpp"
#include "models/synthetic.hpp"
#include "tests/shared_data.hpp"

namespace pumice::bench {
namespace {

/// Parts of products by the stem of their tensors, in models without recurrences: what one of these
/// reads is made by matrices that count as gate and up.
const std::map<std::string_view, Part> kProducts = {{"qkv", Part::kQkv},
                                                    {"attn_q", Part::kQkv},
                                                    {"attn_q_a", Part::kQkv},
                                                    {"attn_q_b", Part::kQkv},
                                                    {"attn_kv_a_mqa", Part::kQkv},
                                                    {"attn_output", Part::kAttentionOutput},
                                                    {"gate_up", Part::kGateUp},
                                                    {"ffn_up", Part::kGateUp},
                                                    {"ffn_up_exps", Part::kGateUp},
                                                    {"ffn_up_shexp", Part::kGateUp},
                                                    {"ffn_down", Part::kDown},
                                                    {"ffn_down_exps", Part::kDown},
                                                    {"ffn_gate_inp", Part::kRouter},
                                                    {"output", Part::kOutput}};

/// Adds the products of a model to those that were met. Families that are not here are left out.
void check_products(const std::string& name, const ModelSource& source,
                    std::set<std::string_view>& met) {
  const Result<Program> program = build_program(source);
  if (!program.ok()) {
    EXPECT_NE(program.error().message.find("is not supported yet"), std::string::npos)
        << name << ": " << program.error().message;
    return;
  }
  const bool recurs = std::ranges::any_of(
      program->ops, [](const Op& op) { return std::holds_alternative<op::Recurrence>(op.what); });
  if (recurs) return;
  const Result<Lowered> lowered = lower(*program);
  ASSERT_TRUE(lowered.ok()) << name << ": " << lowered.error().message;
  for (const Dispatch& dispatch : lowered->dispatches) {
    const auto known = kProducts.find(dispatch.label);
    if (operands(dispatch.what).matrices.empty() || known == kProducts.end()) continue;
    met.insert(known->first);
    EXPECT_EQ(part_name(dispatch.part), part_name(known->second)) << name << ": " << dispatch.label;
  }
}

TEST(Explain, ProductsOfEveryGoldenAreOfThePartThatTheirNamesSay) {
  PUMICE_REQUIRE_SHARED(folder, "reference/families");
  std::set<std::string_view> met;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".gguf") continue;
    const Result<ModelSource> source = ModelSource::open(entry.path());
    ASSERT_TRUE(source.ok()) << source.error().message;
    check_products(entry.path().filename().string(), *source, met);
  }
  for (const auto& [stem, part] : kProducts) EXPECT_TRUE(met.contains(stem)) << stem;
}

TEST(Explain, ProductsOfTheSyntheticModelsAreOfThePartThatTheirNamesSay) {
  std::set<std::string_view> met;
  for (const SyntheticShape& shape : synthetic_presets()) {
    const SyntheticModel model = SyntheticModel::create(shape, {}).value();
    check_products(std::string(shape.name), ModelSource::synthetic(model).value(), met);
  }
  EXPECT_GE(met.size(), 4u);
}

}  // namespace
}  // namespace pumice::bench
