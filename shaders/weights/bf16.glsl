// BF16: the upper halves of floats.
#define WEIGHT_FLOATS 1
const uint kTileCols = 32, kTileUnits = 4, kTileWords = 0;
#include "common/weight_tile.glsl"
const uint kWordWeights = 2;

vec2 weights_of_word(uint word) {
  return vec2(uintBitsToFloat(word << 16), uintBitsToFloat(word & 0xFFFF0000u));
}
