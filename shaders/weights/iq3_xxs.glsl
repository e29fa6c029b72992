// IQ3_XXS: units of numbers of points, then of four times seven signs and a scale a sub-block; half d.
const uint kTileCols = 256, kTileUnits = 6, kTileWords = 1;
#include "common/weight_tile.glsl"
const bool kHalfScales = false;
const bool kSignedCodes = true;

#include "common/weight_pairs.glsl"
#include "common/weight_grid.glsl"

void read_weight_header(inout WeightTile t) { t.scale.x = exact_half(weight_word(t, 0)); }

void read_weight_scales(WeightTile t, uint block, out vec2 scale, out vec2 offset) {
  scale = vec2(t.scale.x * (float(word_of_block(t, 4, block) >> 28) + 0.5) * 0.5);
  offset = vec2(0);
}

struct WeightBlock {
  uint points[8];
  uint signs;  // byte g of values 8g to 8g + 7
};
WeightBlock open_weight_block(WeightTile t, uint block) {
  const PairWords numbers = pair_words(t, 0, block);
  WeightBlock b;
  [[unroll]] for (int i = 0; i < 8; ++i) {
    b.points[i] = grid_point(bitfieldExtract(numbers.of_half[i / 4], 8 * (i % 4), 8));
  }
  b.signs = even_signs(word_of_block(t, 4, block));
  return b;
}
uint weight_codes(WeightBlock b, int h, int k) {
  return signed_bytes(b.points[4 * h + k], b.signs >> (16 * h + 4 * k));
}
