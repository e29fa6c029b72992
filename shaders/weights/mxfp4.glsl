// MXFP4: nibbles of a block each, which select twice a value of E2M1; an exponent each of four blocks.
// (Those of scales below 2^-126 are where devices may flush.)
const uint kTileCols = 128, kTileUnits = 4, kTileWords = 1;
#include "common/weight_tile.glsl"
const bool kHalfScales = false;
const bool kSignedCodes = true;

const uvec4 kTableBytes = uvec4(0x03020100u, 0x0C080604u, 0xFDFEFF00u, 0xF4F8FAFCu);
#include "common/weight_nibble_table.glsl"

void read_weight_header(inout WeightTile t) { t.header.x = weight_word(t, 0); }

void read_weight_scales(WeightTile t, uint block, out vec2 scale, out vec2 offset) {
  const uint exponent = (t.header.x >> (8 * block)) & 0xFFu;
  const uint bits = exponent < 2 ? 0x00200000u << (exponent & 1u) : (exponent - 1) << 23;
  scale = vec2(uintBitsToFloat(bits));
  offset = vec2(0);
}
