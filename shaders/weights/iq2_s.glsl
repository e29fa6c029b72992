// IQ2_S: units of numbers of points (low bytes), of signs, and one of high bits and scales; half d.
const uint kTileCols = 256, kTileUnits = 5, kTileWords = 1;
#include "common/weight_tile.glsl"
const bool kHalfScales = true;
const bool kSignedCodes = true;

#include "common/weight_pairs.glsl"
#include "common/weight_grid.glsl"

void read_weight_header(inout WeightTile t) {
  t.header = whole_unit(weight_unit(t, 4));
  t.scale.x = exact_half(weight_word(t, 0));
}

void read_weight_scales(WeightTile t, uint block, out vec2 scale, out vec2 offset) {
  const uint bits = (block < 4 ? t.header.z : t.header.w) >> (8 * (block & 3u));
  scale = t.scale.x * (vec2(bits & 15u, (bits >> 4) & 15u) + 0.5) * 0.25;
  offset = vec2(0);
}

struct WeightBlock {
  uint points[4];
  uint signs;  // byte g of values 8g to 8g + 7
};
WeightBlock open_weight_block(WeightTile t, uint block) {
  const uint low = word_of_block(t, 0, block);
  const uint high = (block < 4 ? t.header.x : t.header.y) >> (8 * (block & 3u));
  WeightBlock b;
  [[unroll]] for (int g = 0; g < 4; ++g) {
    b.points[g] =
        grid_point(bitfieldExtract(low, 8 * g, 8) | (bitfieldExtract(high, 2 * g, 2) << 8));
  }
  b.signs = word_of_block(t, 2, block);
  return b;
}
uint weight_codes(WeightBlock b, int h, int k) {
  const int g = 2 * h + k / 2;
  return signed_bytes(iq2_magnitudes(codes_of_point(b.points[g], k % 2)),
                      b.signs >> (8 * g + 4 * (k % 2)));
}
