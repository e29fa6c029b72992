// Q6_K: low nibbles of a sub-block each, pairs of two, together less 32; a unit of int8 scales; half d.
// Codes are times four.
const uint kTileCols = 256, kTileUnits = 13, kTileWords = 1;
#include "common/weight_tile.glsl"
const bool kHalfScales = true;
const bool kSignedCodes = true;

void read_weight_header(inout WeightTile t) {
  t.header = whole_unit(weight_unit(t, 12));
  t.scale = exact_halves(weight_word(t, 0));
}

void read_weight_scales(WeightTile t, uint block, out vec2 scale, out vec2 offset) {
  const uint scales = half_word(t.header, block);
  scale = t.scale.x * 0.25 * vec2(signed_byte(scales, 0), signed_byte(scales, 1));
  offset = vec2(0);
}

#include "common/weight_pairs.glsl"

struct WeightBlock {
  WeightUnit unit;
  PairWords pairs;
};
WeightBlock open_weight_block(WeightTile t, uint block) {
  return WeightBlock(weight_unit(t, block), pair_words(t, 8, block));
}
uint weight_codes(WeightBlock b, int h, int k) {
  return nibble_bytes(unit_word(b.unit, k), h, 2) | pair_bytes(b.pairs.of_half[h], k, 6);
}
