// Models of weight types that no golden file has say what the fp64 evaluation of the same file
// says.
#include <string>
#include <vector>

#include "models/families.hpp"
#include "models/reference.hpp"
#include "tests/engine/engine_fixture.hpp"
#include "tests/engine/synthetic_model.hpp"

namespace pumice {
namespace {

class WeightTypes : public test::EngineTest, public ::testing::WithParamInterface<std::string> {};

TEST_P(WeightTypes, LogitsAgree) {
  const test::TemporaryFile file = test::write_synthetic_model(
      {.n_layers = 1, .n_embd = 256, .n_ff = 256, .type = &weight_type(GetParam())});
  const ModelSource source = ModelSource::open(file.path()).value();
  std::vector<TokenId> tokens(40);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(i * 31 % 67);
  const ReferenceLogits exact =
      reference_logits(source, build_program(source).value(), tokens, {}).value();
  const std::vector<float> expected(exact.logits.begin(), exact.logits.end());
  const auto model = load(file.path());
  ASSERT_NE(model, nullptr);
  for (const uint32_t chunk : {40u, 1u}) {
    const std::vector<float> got = logits(
        model, tokens, {.kv_type = KvType::kF32, .math = ops::Math::kF32, .chunk_tokens = chunk});
    EXPECT_LE(test::nmse(got, expected), 1e-9) << "chunks of " << chunk;
  }
}

INSTANTIATE_TEST_SUITE_P(WithoutAGoldenFile, WeightTypes,
                         ::testing::Values("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_S", "IQ3_XXS",
                                           "IQ4_XS", "TQ1_0"),
                         [](const auto& given) { return given.param; });

}  // namespace
}  // namespace pumice
