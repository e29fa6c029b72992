// IQ3_S: units of numbers of points (low bytes), of signs, and one of high bits, scales and half d.
const uint kTileCols = 256, kTileUnits = 7, kTileWords = 0;
#include "common/weight_tile.glsl"
const bool kHalfScales = false;
const bool kSignedCodes = true;

#include "common/weight_pairs.glsl"
#include "common/weight_grid.glsl"

void read_weight_header(inout WeightTile t) {
  t.header = whole_unit(weight_unit(t, 6));
  t.scale.x = exact_half(t.header.w);
}

void read_weight_scales(WeightTile t, uint block, out vec2 scale, out vec2 offset) {
  scale = vec2(t.scale.x * float(2 * ((t.header.z >> (4 * block)) & 15u) + 1));
  offset = vec2(0);
}

struct WeightBlock {
  uint points[8];
  uint signs;  // byte g of values 8g to 8g + 7
};
WeightBlock open_weight_block(WeightTile t, uint block) {
  const PairWords low = pair_words(t, 0, block);
  const uint high = (block < 4 ? t.header.x : t.header.y) >> (8 * (block & 3u));
  WeightBlock b;
  [[unroll]] for (int i = 0; i < 8; ++i) {
    b.points[i] = grid_point(bitfieldExtract(low.of_half[i / 4], 8 * (i % 4), 8) |
                             (bitfieldExtract(high, i, 1) << 8));
  }
  b.signs = word_of_block(t, 4, block);
  return b;
}
uint weight_codes(WeightBlock b, int h, int k) {
  return signed_bytes(b.points[4 * h + k], b.signs >> (16 * h + 4 * k));
}
