// TQ2_0: pairs of two sub-blocks each, which hold a value and 1; half d. TQ1_0 too is laid out so.
const uint kTileCols = 256, kTileUnits = 4, kTileWords = 1;
#include "common/weight_tile.glsl"
const bool kHalfScales = false;
const bool kSignedCodes = true;

#include "common/weight_pairs.glsl"

void read_weight_header(inout WeightTile t) { t.scale.x = exact_half(weight_word(t, 0)); }

void read_weight_scales(WeightTile t, uint block, out vec2 scale, out vec2 offset) {
  scale = t.scale.xx;
  offset = vec2(0);
}

struct WeightBlock {
  PairWords pairs;
};
WeightBlock open_weight_block(WeightTile t, uint block) {
  return WeightBlock(pair_words(t, 0, block));
}
/// Less 1, byte by byte.
uint weight_codes(WeightBlock b, int h, int k) {
  return ((pair_bytes(b.pairs.of_half[h], k, 0) | 0x80808080u) - 0x01010101u) ^ 0x80808080u;
}
