// F32: floats.
#define WEIGHT_FLOATS 1
const uint kTileCols = 32, kTileUnits = 8, kTileWords = 0;
#include "common/weight_tile.glsl"
const uint kWordWeights = 1;

vec2 weights_of_word(uint word) { return vec2(uintBitsToFloat(word), 0.0); }
