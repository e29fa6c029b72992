// IQ1_S: units of numbers of points (low bytes), then one of 16 bits a sub-block: high bits, scale, sign of
// the eighth; half d. Codes are times eight.
const uint kTileCols = 256, kTileUnits = 3, kTileWords = 1;
#include "common/weight_tile.glsl"
const bool kHalfScales = false;
const bool kSignedCodes = true;

#include "common/weight_pairs.glsl"
#include "common/weight_grid.glsl"

void read_weight_header(inout WeightTile t) {
  t.header = whole_unit(weight_unit(t, 2));
  t.scale.x = exact_half(weight_word(t, 0)) * 0.125;
}

void read_weight_scales(WeightTile t, uint block, out vec2 scale, out vec2 offset) {
  const uint bits = half_word(t.header, block);
  scale = vec2(t.scale.x * float(2 * bitfieldExtract(bits, 12, 3) + 1));
  offset = vec2(0);
}

struct WeightBlock {
  uint points[4];
  bool less;  // an eighth is taken off
};
WeightBlock open_weight_block(WeightTile t, uint block) {
  const uint low = word_of_block(t, 0, block);
  const uint high = half_word(t.header, block);
  WeightBlock b;
  [[unroll]] for (int g = 0; g < 4; ++g) {
    b.points[g] =
        grid_point(bitfieldExtract(low, 8 * g, 8) | (bitfieldExtract(high, 3 * g, 3) << 8));
  }
  b.less = (high & 0x8000u) != 0;
  return b;
}
uint weight_codes(WeightBlock b, int h, int k) {
  return iq1_bytes(codes_of_point(b.points[2 * h + k / 2], k % 2), b.less);
}
