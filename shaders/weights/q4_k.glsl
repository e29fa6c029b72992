// Q4_K: a unit of K scales, then nibbles of a sub-block each.
#define WEIGHT_OFFSETS 8
const uint kTileCols = 256, kTileUnits = 9, kTileWords = 0;
#include "common/weight_tile.glsl"
const bool kHalfScales = false;
const bool kSignedCodes = false;

#include "common/weight_k_scales.glsl"

#define WEIGHT_NIBBLES 1
struct WeightBlock {
  WeightUnit unit;
};
WeightBlock open_weight_block(WeightTile t, uint block) {
  return WeightBlock(weight_unit(t, 1 + block));
}
uint weight_codes(WeightBlock b, int h, int k) { return nibble_bytes(unit_word(b.unit, k), h, 0); }
