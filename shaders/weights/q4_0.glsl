// Q4_0: nibbles less 8; a half scale each of two blocks. Codes are times 16.
const uint kTileCols = 64, kTileUnits = 2, kTileWords = 1;
#include "common/weight_tile.glsl"
const bool kHalfScales = false;
const bool kSignedCodes = true;

void read_weight_header(inout WeightTile t) { t.scale = exact_halves(weight_word(t, 0)); }

void read_weight_scales(WeightTile t, uint block, out vec2 scale, out vec2 offset) {
  scale = (block == 0 ? t.scale.xx : t.scale.yy) * 0.0625;
  offset = vec2(0);
}

struct WeightBlock {
  WeightUnit unit;
};
WeightBlock open_weight_block(WeightTile t, uint block) {
  return WeightBlock(weight_unit(t, block));
}
uint weight_codes(WeightBlock b, int h, int k) { return nibble_bytes(unit_word(b.unit, k), h, 4); }

#define WEIGHT_SINGLE_CODES 1
const float kSingleCodes = 16.0;
int single_code(WeightBlock b, int h, int k, int i) {
  return bitfieldExtract(int(unit_word(b.unit, k)), 8 * i + 4 * h, 4);
}
