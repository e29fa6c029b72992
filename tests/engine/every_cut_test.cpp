// Law 1 on a model with a window and on one that keeps latents, exhaustively: chunks of every size,
// hits of every length.
#include <algorithm>
#include <string>

#include "tests/engine/windows_fixture.hpp"

namespace pumice {
namespace {

using test::Family;
using test::kPrompt;
using test::Told;

/// All ways to cut and to share.
class EveryCut : public test::Windows {};

TEST_P(EveryCut, ChunksOfEverySizeChangeNothing) {
  for (uint32_t chunk = 1; chunk < kPrompt; ++chunk) {
    const auto engine = this->engine(
        {.token_budget = std::max(chunk, 16u), .chunk_tokens = chunk, .prefix_cache = false});
    const Told cut = run(*engine, prompt_);
    expect_whole(cut, "chunks of " + std::to_string(chunk));
    EXPECT_GE(cut.report.prefill_iterations, (kPrompt + chunk - 1) / chunk);
  }
}

class EveryHit : public EveryCut {};

TEST_P(EveryHit, HitsOfEveryLengthChangeNothingAndComputeTheRestOnly) {
  const auto engine = this->engine({.kv_blocks = 48});
  for (uint32_t shared = 0; shared < kPrompt; ++shared) {
    const std::string salt = "so much is shared: " + std::to_string(shared);
    Told other;
    ASSERT_TRUE(submit(*engine, beginning(shared), other, 1, salt).ok());
    while (!engine->idle()) step(*engine);
    const Told again = run(*engine, prompt_, salt);
    expect_whole(again, std::to_string(shared) + " tokens shared");
    EXPECT_EQ(again.report.cache.cached_tokens, shared);
    EXPECT_EQ(again.rows, rows_after(shared));
  }
}

/// Fp32 with keys and values in Q8_0: what rounds another way in another cut moves an element by a
/// step of its type.
constexpr test::Arithmetic kQ8Arithmetic{ops::Math::kF32, 1e-6, "F32"};

INSTANTIATE_TEST_SUITE_P(Families, EveryCut,
                         ::testing::Values(Family{"gemma2"},
                                           Family{"gemma2", test::kF32Arithmetic, true},
                                           Family{"gemma2", kQ8Arithmetic, false, KvType::kQ8_0},
                                           Family{"deepseek2"}),
                         test::family_name);
INSTANTIATE_TEST_SUITE_P(Families, EveryHit,
                         ::testing::Values(Family{"gemma2", test::kF32Arithmetic, true},
                                           Family{"gemma2", kQ8Arithmetic, false, KvType::kQ8_0},
                                           Family{"deepseek2"}),
                         test::family_name);

}  // namespace
}  // namespace pumice
