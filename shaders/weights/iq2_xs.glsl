// IQ2_XS: 16 bits for eight values: number of a point, seven signs; half d; two words of scales.
const uint kTileCols = 256, kTileUnits = 4, kTileWords = 3;
#include "common/weight_tile.glsl"
const bool kHalfScales = true;
const bool kSignedCodes = true;

#include "common/weight_pairs.glsl"
#include "common/weight_grid.glsl"

void read_weight_header(inout WeightTile t) {
  t.header.xy = uvec2(weight_word(t, 1), weight_word(t, 2));
  t.scale.x = exact_half(weight_word(t, 0));
}

void read_weight_scales(WeightTile t, uint block, out vec2 scale, out vec2 offset) {
  const uint bits = (block < 4 ? t.header.x : t.header.y) >> (8 * (block & 3u));
  scale = t.scale.x * (vec2(bits & 15u, (bits >> 4) & 15u) + 0.5) * 0.25;
  offset = vec2(0);
}

struct WeightBlock {
  uint points[4];
  uint signs;  // byte g of values 8g to 8g + 7
};
WeightBlock open_weight_block(WeightTile t, uint block) {
  const PairWords words = pair_words(t, 0, block);
  WeightBlock b;
  uint sevens = 0;
  [[unroll]] for (int g = 0; g < 4; ++g) {
    const uint bits = bitfieldExtract(words.of_half[g / 2], 16 * (g % 2), 16);
    b.points[g] = grid_point(bits & 511u);
    sevens |= (bits >> 9) << (7 * g);
  }
  b.signs = even_signs(sevens);
  return b;
}
uint weight_codes(WeightBlock b, int h, int k) {
  const int g = 2 * h + k / 2;
  return signed_bytes(iq2_magnitudes(codes_of_point(b.points[g], k % 2)),
                      b.signs >> (8 * g + 4 * (k % 2)));
}
