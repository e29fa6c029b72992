// Q8_0: int8, two units a block; a half scale each of two blocks.
const uint kTileCols = 64, kTileUnits = 4, kTileWords = 1;
#include "common/weight_tile.glsl"
const bool kHalfScales = false;
const bool kSignedCodes = true;

void read_weight_header(inout WeightTile t) { t.scale = exact_halves(weight_word(t, 0)); }

void read_weight_scales(WeightTile t, uint block, out vec2 scale, out vec2 offset) {
  scale = block == 0 ? t.scale.xx : t.scale.yy;
  offset = vec2(0);
}

struct WeightBlock {
  WeightUnit first, second;
};
WeightBlock open_weight_block(WeightTile t, uint block) {
  return WeightBlock(weight_unit(t, 2 * block), weight_unit(t, 2 * block + 1));
}
uint weight_codes(WeightBlock b, int h, int k) {
  return h == 0 ? unit_word(b.first, k) : unit_word(b.second, k);
}
