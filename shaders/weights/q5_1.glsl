// Q5_1: low nibbles and a word of high bits; half scale and half offset of each block.
#define WEIGHT_OFFSETS 16
const uint kTileCols = 64, kTileUnits = 2, kTileWords = 4;
#include "common/weight_tile.glsl"
const bool kHalfScales = false;
const bool kSignedCodes = false;

void read_weight_header(inout WeightTile t) {
  t.header.xy = uvec2(weight_word(t, 0), weight_word(t, 1));
}

void read_weight_scales(WeightTile t, uint block, out vec2 scale, out vec2 offset) {
  const vec2 both = exact_halves(block == 0 ? t.header.x : t.header.y);
  scale = both.xx;
  offset = both.yy;
}

struct WeightBlock {
  WeightUnit unit;
  uint high;
};
WeightBlock open_weight_block(WeightTile t, uint block) {
  return WeightBlock(weight_unit(t, block), weight_word(t, 2 + block));
}
uint weight_codes(WeightBlock b, int h, int k) {
  return nibble_bytes(unit_word(b.unit, k), h, 0) | high_bit_bytes(b.high, h, k, 4);
}
