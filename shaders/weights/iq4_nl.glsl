// IQ4_NL: nibbles that select one of 16 values; a half scale each of two blocks.
const uint kTileCols = 64, kTileUnits = 2, kTileWords = 1;
#include "common/weight_tile.glsl"
const bool kHalfScales = false;
const bool kSignedCodes = true;

const uvec4 kTableBytes = uvec4(0xBFAD9881u, 0xF6EADDCFu, 0x26190D01u, 0x71594535u);
#include "common/weight_nibble_table.glsl"

void read_weight_header(inout WeightTile t) { t.scale = exact_halves(weight_word(t, 0)); }

void read_weight_scales(WeightTile t, uint block, out vec2 scale, out vec2 offset) {
  scale = block == 0 ? t.scale.xx : t.scale.yy;
  offset = vec2(0);
}
