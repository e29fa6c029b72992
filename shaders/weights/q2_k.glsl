// Q2_K: a unit of scales and minima, then pairs of two sub-blocks each; half d, half dmin.
#define WEIGHT_OFFSETS 2
const uint kTileCols = 256, kTileUnits = 5, kTileWords = 1;
#include "common/weight_tile.glsl"
const bool kHalfScales = true;
const bool kSignedCodes = false;

void read_weight_header(inout WeightTile t) {
  t.header = whole_unit(weight_unit(t, 0));
  t.scale = exact_halves(weight_word(t, 0));
}

void read_weight_scales(WeightTile t, uint block, out vec2 scale, out vec2 offset) {
  const uint scales = half_word(t.header, block);
  scale = t.scale.x * vec2(scales & 15u, (scales >> 8) & 15u);
  offset = -t.scale.y * vec2((scales >> 4) & 15u, (scales >> 12) & 15u);
}

#include "common/weight_pairs.glsl"

struct WeightBlock {
  PairWords pairs;
};
WeightBlock open_weight_block(WeightTile t, uint block) {
  return WeightBlock(pair_words(t, 1, block));
}
uint weight_codes(WeightBlock b, int h, int k) { return pair_bytes(b.pairs.of_half[h], k, 0); }
