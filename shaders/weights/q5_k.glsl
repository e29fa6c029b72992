// Q5_K: a unit of K scales, low nibbles of a sub-block each, two units of high bits.
#define WEIGHT_OFFSETS 16
const uint kTileCols = 256, kTileUnits = 11, kTileWords = 0;
#include "common/weight_tile.glsl"
const bool kHalfScales = false;
const bool kSignedCodes = false;

#include "common/weight_k_scales.glsl"

struct WeightBlock {
  WeightUnit unit;
  uint high;
};
WeightBlock open_weight_block(WeightTile t, uint block) {
  return WeightBlock(weight_unit(t, 1 + block), unit_word(weight_unit(t, 9 + (block >> 2)), block & 3u));
}
uint weight_codes(WeightBlock b, int h, int k) {
  return nibble_bytes(unit_word(b.unit, k), h, 0) | high_bit_bytes(b.high, h, k, 4);
}
