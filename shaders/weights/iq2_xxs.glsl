// IQ2_XXS: two words a sub-block: four numbers of points; four times seven signs and a scale; half d.
const uint kTileCols = 256, kTileUnits = 4, kTileWords = 1;
#include "common/weight_tile.glsl"
const bool kHalfScales = false;
const bool kSignedCodes = true;

#include "common/weight_pairs.glsl"
#include "common/weight_grid.glsl"

void read_weight_header(inout WeightTile t) { t.scale.x = exact_half(weight_word(t, 0)); }

void read_weight_scales(WeightTile t, uint block, out vec2 scale, out vec2 offset) {
  const uint bits = pair_words(t, 0, block).of_half[1] >> 28;
  scale = vec2(t.scale.x * (float(bits) + 0.5) * 0.25);
  offset = vec2(0);
}

struct WeightBlock {
  uint points[4];
  uint signs;  // byte g of values 8g to 8g + 7
};
WeightBlock open_weight_block(WeightTile t, uint block) {
  const PairWords words = pair_words(t, 0, block);
  WeightBlock b;
  [[unroll]] for (int g = 0; g < 4; ++g) {
    b.points[g] = grid_point(bitfieldExtract(words.of_half[0], 8 * g, 8));
  }
  b.signs = even_signs(words.of_half[1]);
  return b;
}
uint weight_codes(WeightBlock b, int h, int k) {
  const int g = 2 * h + k / 2;
  return signed_bytes(iq2_magnitudes(codes_of_point(b.points[g], k % 2)),
                      b.signs >> (8 * g + 4 * (k % 2)));
}
