// Nemotron 3 has no golden file: a Nemotron-H whose feed-forwards are cut into experts says what
// the whole one says.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "models/families.hpp"
#include "models/lowering.hpp"
#include "models/reference.hpp"
#include "tests/models/nmse.hpp"
#include "tests/models/split_nemotron.hpp"
#include "tests/shared_data.hpp"

namespace pumice {
namespace {

TEST(NemotronHMoe, ExpertsInALatentSplitAFeedForward) {
  const auto stem = test::shared_path("reference/families/nemotron-h").string();
  if (!std::filesystem::exists(stem + ".gguf")) GTEST_SKIP() << "no shared data: " << stem;
  const ModelSource golden = ModelSource::open(stem + ".gguf").value();
  const auto file = test::split_nemotron(golden);
  const Result<Program> program = build_program(file->file());
  ASSERT_TRUE(program.ok()) << program.error().message;
  EXPECT_TRUE(lower(*program).ok());

  std::ifstream json(stem + ".json");
  const auto tokens = nlohmann::json::parse(json).at("tokens").get<std::vector<TokenId>>();
  std::vector<float> expected(std::filesystem::file_size(stem + ".f32") / sizeof(float));
  std::ifstream logits(stem + ".f32", std::ios::binary);
  logits.read(reinterpret_cast<char*>(expected.data()),
              static_cast<std::streamsize>(expected.size() * sizeof(float)));
  const Result<ReferenceLogits> got =
      reference_logits(file->file(), *program, tokens, {.max_threads = 2});
  ASSERT_TRUE(got.ok()) << got.error().message;
  ASSERT_EQ(got->logits.size(), expected.size());
  EXPECT_LE(test::nmse(got->logits, expected), 1e-11);
}

}  // namespace
}  // namespace pumice
