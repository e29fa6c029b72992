// One weight at a time, for decoding functions of tensor loads. Included after common/weights.glsl.
//
//   weight_element(tile_address, lane, col)
//
// is the weight of row `lane` (of 32) and column `col` (of kTileCols) of the resident tile at that
// address, bit-equal to read_weight_block. Loads are of words, since neighbouring elements may be
// other invocations'.
#ifndef PUMICE_SHADERS_COMMON_WEIGHTS_ELEMENT_GLSL
#define PUMICE_SHADERS_COMMON_WEIGHTS_ELEMENT_GLSL

#if !defined(WEIGHT_F32) && !defined(WEIGHT_F16) && !defined(WEIGHT_BF16)
#include "common/weights_int8.glsl"
#endif

uint unit_word(WeightTile t, uint unit, uint component) {
  return WeightWords(t.base).at[(t.unit + unit * 32) * 4 + component];
}

#if !defined(WEIGHT_F32) && !defined(WEIGHT_F16) && !defined(WEIGHT_BF16)

uint pair_at(uint pairs, uint byte, uint k) {
  return bitfieldExtract(pairs, int(8 * byte + 2 * k), 2);
}
uint high_bit_at(uint bits, uint byte, uint k, uint h) {
  return bitfieldExtract(bits, int(8 * byte + k + 4 * h), 1);
}

/// What read_weight_bytes puts into byte `i` of the block.
int weight_byte(WeightTile t, uint block, uint i) {
  const uint h = i / 16;
  const uint k = i % 16 / 4;
  const uint byte = i % 4;
#if defined(WEIGHT_Q8_0)
  return bitfieldExtract(int(unit_word(t, 2 * block + h, k)), int(8 * byte), 8);
#else

#if defined(WEIGHT_Q2_K) || defined(WEIGHT_Q3_K)
  const uint pair = pair_at(unit_word(t, 1 + block / 2, block % 2 * 2 + h), byte, k);
#else
#if defined(WEIGHT_Q4_K) || defined(WEIGHT_Q5_K)
  const uint unit = 1 + block;
#else
  const uint unit = block;
#endif
  const uint low = bitfieldExtract(unit_word(t, unit, k), int(8 * byte + 4 * h), 4);
#endif
  uint value;
#if defined(WEIGHT_Q4_0)
  value = low << 4;
#elif defined(WEIGHT_IQ4_NL)
  value = table_bytes(low) & 0xFFu;
#elif defined(WEIGHT_Q4_1) || defined(WEIGHT_Q4_K)
  value = low;
#elif defined(WEIGHT_Q5_0)
  value = low << 3 | high_bit_at(weight_word(t, 1 + block), byte, k, h) << 7;
#elif defined(WEIGHT_Q5_1)
  value = low | high_bit_at(weight_word(t, 2 + block), byte, k, h) << 4;
#elif defined(WEIGHT_Q5_K)
  value = low | high_bit_at(unit_word(t, 9 + block / 4, block % 4), byte, k, h) << 4;
#elif defined(WEIGHT_Q2_K)
  value = pair;
#elif defined(WEIGHT_Q3_K)
  value = pair << 5 | high_bit_at(unit_word(t, 5 + block / 4, block % 4), byte, k, h) << 7;
#elif defined(WEIGHT_Q6_K)
  const uint pair = pair_at(unit_word(t, 8 + block / 2, block % 2 * 2 + h), byte, k);
  value = low << 2 | pair << 6;
#endif
  return bitfieldExtract(int(value), 0, 8);
#endif
}

#endif

float weight_element(uvec2 tile_address, uint lane, uint col) {
  const WeightTile t = open_weight_tile(tile_address, 1, lane, 0);
#if defined(WEIGHT_F32)
  return uintBitsToFloat(unit_word(t, col / 4, col % 4));
#elif defined(WEIGHT_F16) || defined(WEIGHT_BF16)
  const uint pair = unit_word(t, col / 8, col % 8 / 2);
#if defined(WEIGHT_F16)
  const vec2 values = unpackHalf2x16(pair);
  return (col & 1u) != 0 ? values.y : values.x;
#else
  return uintBitsToFloat((col & 1u) != 0 ? pair & 0xFFFF0000u : pair << 16);
#endif
#else
  const uint block = col / 32;
  const uint i = col % 32;
  vec2 scale, offset;
  read_weight_scales(t, block, scale, offset);
  const float q = float(weight_byte(t, block, i));
  const float s = kHalfScales && i >= 16 ? scale.y : scale.x;
  precise float value = q * s;
  if (kOffsets) value = fma(q, s, kHalfScales && i >= 16 ? offset.y : offset.x);
  return value;
#endif
}

#endif
