// Q3_K: a unit of int8 scales, pairs of two sub-blocks each, two units of high bits, together less 4; half d.
// Codes are times 32.
const uint kTileCols = 256, kTileUnits = 7, kTileWords = 1;
#include "common/weight_tile.glsl"
const bool kHalfScales = true;
const bool kSignedCodes = true;

void read_weight_header(inout WeightTile t) {
  t.header = whole_unit(weight_unit(t, 0));
  t.scale = exact_halves(weight_word(t, 0));
}

void read_weight_scales(WeightTile t, uint block, out vec2 scale, out vec2 offset) {
  const uint scales = half_word(t.header, block);
  scale = t.scale.x * 0.03125 * vec2(signed_byte(scales, 0), signed_byte(scales, 1));
  offset = vec2(0);
}

#include "common/weight_pairs.glsl"

struct WeightBlock {
  PairWords pairs;
  uint high;
};
WeightBlock open_weight_block(WeightTile t, uint block) {
  return WeightBlock(pair_words(t, 1, block),
                     unit_word(weight_unit(t, 5 + (block >> 2)), block & 3u));
}
uint weight_codes(WeightBlock b, int h, int k) {
  return pair_bytes(b.pairs.of_half[h], k, 5) | high_bit_bytes(b.high, h, k, 7);
}
