// IQ4_XS: nibbles of a sub-block each, which select one of 16 values; half d, scales of six bits less 32.
const uint kTileCols = 256, kTileUnits = 8, kTileWords = 2;
#include "common/weight_tile.glsl"
const bool kHalfScales = false;
const bool kSignedCodes = true;

const uvec4 kTableBytes = uvec4(0xBFAD9881u, 0xF6EADDCFu, 0x26190D01u, 0x71594535u);
#include "common/weight_nibble_table.glsl"

void read_weight_header(inout WeightTile t) {
  t.header.xy = uvec2(weight_word(t, 0), weight_word(t, 1));
  t.scale.x = exact_half(t.header.x);
}

void read_weight_scales(WeightTile t, uint block, out vec2 scale, out vec2 offset) {
  const uint low = (t.header.y >> (4 * block)) & 15u;
  const uint high = (t.header.x >> (16 + 2 * block)) & 3u;
  scale = vec2(t.scale.x * float(int(low | (high << 4)) - 32));
  offset = vec2(0);
}
