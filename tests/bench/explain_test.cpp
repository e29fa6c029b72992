// Every part that a family's dispatches name is one that --explain can hold against a peak.
#include "bench/explain.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "models/families.hpp"
#include "models/lowering.hpp"
#include "models/model_source.hpp"
#include "models/synthetic.hpp"
#include "tests/paths.hpp"
#include "tests/shared_data.hpp"

namespace pumice::bench {
namespace {

/// The parts of the model's dispatches that nobody entered, with the file's name.
std::set<std::string> unknown_parts(const std::string& name, const ModelSource& source) {
  std::set<std::string> unknown;
  const Result<Program> program = build_program(source);
  EXPECT_TRUE(program.ok()) << name << ": " << program.error().message;
  if (!program.ok()) return unknown;
  const Result<Lowered> lowered = lower(*program);
  EXPECT_TRUE(lowered.ok()) << name << ": " << lowered.error().message;
  if (!lowered.ok()) return unknown;
  for (const Dispatch& dispatch : lowered->dispatches) {
    if (!component_of_part(dispatch.part)) unknown.insert(name + ": " + dispatch.part);
  }
  return unknown;
}

/// Goldens of families that are not here yet are no error.
bool has_family(const ModelSource& source) {
  const Result<Program> program = build_program(source);
  return program.ok() || program.error().message.find("is not supported yet") == std::string::npos;
}

TEST(Explain, KnowsEveryPartOfEveryGoldenFamily) {
  PUMICE_REQUIRE_SHARED(folder, "reference/families");
  std::set<std::string> unknown;
  size_t n_files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".gguf") continue;
    const Result<ModelSource> source = ModelSource::open(entry.path());
    ASSERT_TRUE(source.ok()) << source.error().message;
    if (!has_family(*source)) continue;
    ++n_files;
    unknown.merge(unknown_parts(entry.path().filename().string(), *source));
  }
  EXPECT_GT(n_files, 30u);
  EXPECT_EQ(unknown, std::set<std::string>{});
}

TEST(Explain, KnowsEveryPartOfTheSyntheticModels) {
  std::set<std::string> unknown;
  for (const SyntheticShape& shape : synthetic_presets()) {
    const SyntheticModel model = SyntheticModel::create(shape, {}).value();
    unknown.merge(unknown_parts(std::string(shape.name), ModelSource::synthetic(model).value()));
  }
  EXPECT_EQ(unknown, std::set<std::string>{});
}

TEST(Explain, APartThatNobodyEnteredIsUnknown) {
  EXPECT_FALSE(component_of_part("attn_novel"));
  EXPECT_FALSE(component_of_part(""));
}

TEST(Explain, ProductsOfUngatedAndOfLatentModelsAreTheComponentsTheCostModelCountsThemAs) {
  EXPECT_EQ(component_of_part("ffn_up"), Component::kGateUp);
  for (const char* part : {"attn_qkv", "attn_q_a", "attn_q_b", "attn_kv_a_mqa"}) {
    EXPECT_EQ(component_of_part(part), Component::kQkv) << part;
  }
}

}  // namespace
}  // namespace pumice::bench
