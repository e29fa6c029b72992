// Models with random weights compute like models: logits are finite, spread and about the prompt.
#include "tests/engine/engine_fixture.hpp"
#include "tests/engine/synthetic_model.hpp"

namespace pumice {
namespace {

class Synthetic : public test::EngineTest {};

TEST_F(Synthetic, LogitsOfEveryWeightTypeAreSane) {
  const std::vector<TokenId> prompt{1, 17, 93, 5, 60};
  const std::vector<TokenId> other{1, 18, 93, 5, 60};
  for (const WeightType& type : weight_types()) {
    if (!type.has_codec()) continue;
    const test::TemporaryFile file =
        test::write_synthetic_model({.n_embd = 256, .n_ff = 256, .type = &type});
    const auto model = load(file.path());
    ASSERT_NE(model, nullptr);
    const std::vector<float> values = logits(model, prompt, {.kv_type = KvType::kF32});
    double square = 0;
    for (const float value : values) square += static_cast<double>(value) * value;
    const double deviation = std::sqrt(square / static_cast<double>(values.size()));
    EXPECT_GT(deviation, 1.0) << type.name;  // written with a gain of 1.5
    EXPECT_LT(deviation, 2.0) << type.name;  // not NaN either
    EXPECT_GT(test::nmse(logits(model, other, {.kv_type = KvType::kF32}), values), 1e-3)
        << type.name;
  }
}

}  // namespace
}  // namespace pumice
