// Q5_0: low nibbles and a word of high bits, together less 16; a half scale each of two blocks. Codes are
// times eight.
const uint kTileCols = 64, kTileUnits = 2, kTileWords = 3;
#include "common/weight_tile.glsl"
const bool kHalfScales = false;
const bool kSignedCodes = true;

void read_weight_header(inout WeightTile t) { t.scale = exact_halves(weight_word(t, 0)); }

void read_weight_scales(WeightTile t, uint block, out vec2 scale, out vec2 offset) {
  scale = (block == 0 ? t.scale.xx : t.scale.yy) * 0.125;
  offset = vec2(0);
}

struct WeightBlock {
  WeightUnit unit;
  uint high;
};
WeightBlock open_weight_block(WeightTile t, uint block) {
  return WeightBlock(weight_unit(t, block), weight_word(t, 1 + block));
}
uint weight_codes(WeightBlock b, int h, int k) {
  return nibble_bytes(unit_word(b.unit, k), h, 3) | high_bit_bytes(b.high, h, k, 7);
}
