// F16: halves, by the device's own conversion: one instruction, exact wherever halves are not flushed.
#define WEIGHT_FLOATS 1
const uint kTileCols = 32, kTileUnits = 4, kTileWords = 0;
#include "common/weight_tile.glsl"
const uint kWordWeights = 2;

vec2 weights_of_word(uint word) { return unpackHalf2x16(word); }
