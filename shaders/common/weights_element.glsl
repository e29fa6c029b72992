// One weight at a time, for decoding functions of tensor loads. Includes common/weights.glsl, so that
// only words that are wanted are loaded: neighbouring elements may be other invocations'.
//
//   weight_element(tile_address, lane, col)
//
// is the weight of row `lane` (of 32) and column `col` (of kTileCols) of the resident tile at that
// address, bit-equal to read_weight_block.
#ifndef PUMICE_SHADERS_COMMON_WEIGHTS_ELEMENT_GLSL
#define PUMICE_SHADERS_COMMON_WEIGHTS_ELEMENT_GLSL

#define WEIGHT_ELEMENTS 1
#include "common/weights.glsl"

float weight_element(uvec2 tile_address, uint lane, uint col) {
  const WeightTile t = open_weight_tile(tile_address, 1, lane, 0);
#ifdef WEIGHT_FLOATS
  const uint word = col / kWordWeights;
  return weights_of_word(unit_word(weight_unit(t, word / 4), word % 4))[col % kWordWeights];
#else
  const uint block = col / 32;
  const int h = int(col % 32 / 16);
  vec2 scale, offset;
  read_weight_scales(t, block, scale, offset);
  const uint codes = weight_codes(open_weight_block(t, block), h, int(col % 16 / 4));
  const bool second = kHalfScales && h == 1;
  return scaled_code(weight_code(codes, int(col % 4)), second ? scale.y : scale.x,
                     second ? offset.y : offset.x);
#endif
}

#endif
