// How much of a latent attention is expanded at a time, and when: on paper, without a device.
#include "models/latent_expansion.hpp"

#include <gtest/gtest.h>

namespace pumice {
namespace {

constexpr uint64_t kLargeSlab = uint64_t{1} << 30;

/// Attention of DeepSeek V2 Lite, or of DeepSeek V3 with 128 heads.
Lowered latents_of(uint32_t n_heads) {
  Lowered lowered;
  lowered.attention_classes = {
      {.n_heads = n_heads, .n_kv_heads = 1, .head_dim = 576, .latent_dim = 512},
      {.n_heads = n_heads, .n_kv_heads = n_heads, .head_dim = 192, .v_dim = 128, .expands = 0}};
  return lowered;
}

TEST(LatentExpansion, HoldsAllHeadsOfAShortContextAndFewOfALongOne) {
  const ExpansionSizes sizes = *expansion_sizes(latents_of(16), 1, 4090, false, kLargeSlab);
  EXPECT_EQ(sizes.shape.rank, 512u);
  EXPECT_EQ(sizes.shape.n_still, 128u);
  EXPECT_EQ(sizes.shape.n_turned, 64u);
  EXPECT_EQ(sizes.n_heads, 16u);
  EXPECT_EQ(sizes.n_keys, 4096u);
  EXPECT_EQ(sizes.piece_keys, 1024u);
  EXPECT_EQ(sizes.layout(KvType::kF16).block_bytes() * 4096 / kKvBlockTokens,
            uint64_t{4096} * 16 * (192 + 128) * 2);
  const ExpansionSizes longer = *expansion_sizes(latents_of(16), 1, 32768, false, kLargeSlab);
  EXPECT_EQ(longer.n_heads, 2u);
  EXPECT_EQ(longer.n_keys, 32768u);
  const ExpansionSizes longest = *expansion_sizes(latents_of(16), 1, 1 << 20, false, kLargeSlab);
  EXPECT_EQ(longest.n_heads, 1u);
  EXPECT_LT(longest.n_keys, 1u << 20);  // behind them latents are attended as they are
}

TEST(LatentExpansion, TakesABoundedPartOfMemoryWhateverTheContext) {
  for (const uint32_t n_heads : {16u, 128u}) {
    for (uint32_t context = 16; context < 1u << 22; context = context * 3 + 5) {
      for (const uint64_t slab : {kLargeSlab, uint64_t{8} << 20}) {
        const auto sizes = expansion_sizes(latents_of(n_heads), 1, context, false, slab);
        ASSERT_TRUE(sizes) << context;
        EXPECT_EQ(n_heads % sizes->n_heads, 0u);
        EXPECT_EQ(sizes->n_keys % kKvBlockTokens, 0u);
        EXPECT_EQ(sizes->piece_keys % kKvBlockTokens, 0u);
        ExpansionBuffers buffers;
        vk::ArenaLayout arena(vk::MemoryDomain::kDevice, "");
        buffers.lay_out(*sizes, arena);
        EXPECT_LE(arena.sizes(slab).largest_bytes(), slab);
        EXPECT_LE(arena.bytes(), uint64_t{320} << 20);
      }
    }
  }
}

TEST(LatentExpansion, IsNotWhereBitsAreOneFormsOrNothingFits) {
  EXPECT_FALSE(expansion_sizes(latents_of(16), 1, 4096, true, kLargeSlab));
  EXPECT_FALSE(expansion_sizes(latents_of(16), 0, 4096, false, kLargeSlab));
  EXPECT_FALSE(expansion_sizes(latents_of(16), 1, 4096, false, 64 << 10));
}

TEST(LatentExpansion, SuitsChunksThatCostLessByIt) {
  const ExpansionSizes::Shape shape =
      expansion_sizes(latents_of(16), 1, 4096, false, kLargeSlab)->shape;
  // Counted one by one, of a head: products of each row or of each key, then every row and key.
  const auto cheaper = [](uint32_t before, uint32_t rows) {
    uint64_t absorbed = 0;
    uint64_t expanded = 0;
    for (uint32_t row = 0; row < rows; ++row) {
      absorbed += 128 * 512 + 512 * 128;
      for (uint32_t key = 0; key <= before + row; ++key) {
        absorbed += 576 + 512;
        expanded += 192 + 128;
      }
    }
    for (uint32_t key = 0; key < before + rows; ++key) expanded += 512 * (128 + 128);
    return expanded < absorbed;
  };
  uint32_t n_suit = 0;
  uint32_t n_cases = 0;
  for (const uint32_t before : {0u, 1u, 40u, 1000u, 3000u}) {
    for (const uint32_t rows : {1u, 9u, 100u, 160u, 180u, 512u}) {
      const bool suits = shape.suits({.n_rows = rows, .first_position = before});
      EXPECT_EQ(suits, cheaper(before, rows)) << rows << " rows after " << before;
      n_suit += suits ? 1 : 0;
      ++n_cases;
    }
  }
  EXPECT_GT(n_suit, 5u);
  EXPECT_LT(n_suit, n_cases - 5);
}

}  // namespace
}  // namespace pumice
