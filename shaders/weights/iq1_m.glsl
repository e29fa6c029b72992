// IQ1_M: units of numbers of points (low bytes), then one of four bits a point: high bits, sign of the
// eighth; two words of scales of three bits and, on top of each 16, four of half d. Codes are times eight.
const uint kTileCols = 256, kTileUnits = 3, kTileWords = 2;
#include "common/weight_tile.glsl"
const bool kHalfScales = true;
const bool kSignedCodes = true;

#include "common/weight_pairs.glsl"
#include "common/weight_grid.glsl"

void read_weight_header(inout WeightTile t) {
  t.header = whole_unit(weight_unit(t, 2));
  const uint low = weight_word(t, 0);
  const uint high = weight_word(t, 1);
  t.scale.x = exact_half(((low >> 12) & 0xFu) | ((low >> 24) & 0xF0u) | ((high >> 4) & 0xF00u) |
                         ((high >> 16) & 0xF000u)) *
              0.125;
}

void read_weight_scales(WeightTile t, uint block, out vec2 scale, out vec2 offset) {
  const uint bits = weight_word(t, block >> 2) >> (16 * ((block >> 1) & 1u) + 6 * (block & 1u));
  scale = t.scale.x * vec2(2 * (bits & 7u) + 1, 2 * ((bits >> 3) & 7u) + 1);
  offset = vec2(0);
}

struct WeightBlock {
  uint points[4];
  uint high;  // bit 4g + 3: an eighth is taken off values 8g to 8g + 7
};
WeightBlock open_weight_block(WeightTile t, uint block) {
  const uint low = word_of_block(t, 0, block);
  WeightBlock b;
  b.high = half_word(t.header, block);
  [[unroll]] for (int g = 0; g < 4; ++g) {
    b.points[g] =
        grid_point(bitfieldExtract(low, 8 * g, 8) | (bitfieldExtract(b.high, 4 * g, 3) << 8));
  }
  return b;
}
uint weight_codes(WeightBlock b, int h, int k) {
  const int g = 2 * h + k / 2;
  return iq1_bytes(codes_of_point(b.points[g], k % 2), bitfieldExtract(b.high, 4 * g + 3, 1) != 0);
}
