// Families that no golden file shows run as their formulas say, in chunks too.
#include <vector>

#include "tests/engine/engine_fixture.hpp"
#include "tests/models/plain_decoder.hpp"

namespace pumice {
namespace {

constexpr double kF32Bound = 1e-9;
constexpr uint32_t kTokens = 40;

class PlainFamilies : public test::EngineTest,
                      public ::testing::WithParamInterface<test::PlainFamily> {};

TEST_P(PlainFamilies, LogitsAgree) {
  const test::PlainDecoder& form = GetParam().form;
  const auto tensors = form.random_tensors(3);
  const auto file = form.file(tensors, GetParam().keys);
  const auto model = Model::load(pipelines_->device(), ModelSource(file->file()));
  ASSERT_TRUE(model.ok()) << model.error().message;
  std::vector<TokenId> tokens(kTokens);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(i * 13 % 48);
  const std::vector<double> plain = form.logits(tensors, tokens);
  const std::vector<float> expected(plain.begin(), plain.end());
  for (const uint32_t chunk : {kTokens, 17u}) {
    EXPECT_LE(test::nmse(
                  logits(*model, tokens,
                         {.kv_type = KvType::kF32, .math = ops::Math::kF32, .chunk_tokens = chunk}),
                  expected),
              kF32Bound)
        << "chunks of " << chunk;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, PlainFamilies, ::testing::ValuesIn(test::plain_families()),
                         [](const auto& given) { return given.param.name; });

}  // namespace
}  // namespace pumice
