// Quantised weights as they are: bytes and what they are multiplied with, for integer dot products and
// where sums of products are cheaper to scale than weights.
// Included after common/weights.glsl, whose tiles it reads; not for F32, F16 and BF16.
//
//   WeightBytes w;
//   read_weight_bytes(t, block, w);
//
// gives the same columns as read_weight_block: weight i of the block is exactly
//
//   w.scale[h] * byte(w.q[i / 4], i % 4) + w.offset[h]      h = i / 16, bytes signed
//
// where scale and offset are those of the half block; without kHalfScales both halves have one, and
// without kOffsets the offset is zero. Bytes hold values as far up as suits extracting them (Q4_0
// times 16), with scales divided by as much: any int8 but no intermediate below -128.
#ifndef PUMICE_SHADERS_COMMON_WEIGHTS_INT8_GLSL
#define PUMICE_SHADERS_COMMON_WEIGHTS_INT8_GLSL

#if defined(WEIGHT_F32) || defined(WEIGHT_F16) || defined(WEIGHT_BF16)
#error "these weights are no integers"
#endif

#if defined(WEIGHT_Q2_K) || defined(WEIGHT_Q3_K) || defined(WEIGHT_Q6_K)
const bool kHalfScales = true;
#else
const bool kHalfScales = false;
#endif
#if defined(WEIGHT_Q4_1) || defined(WEIGHT_Q5_1) || defined(WEIGHT_Q2_K) || \
    defined(WEIGHT_Q4_K) || defined(WEIGHT_Q5_K)
const bool kOffsets = true;
#else
const bool kOffsets = false;
#endif

struct WeightBytes {
  int q[8];  // bytes 4i … 4i + 3 of the block
  vec2 scale;
  vec2 offset;
};

#if defined(WEIGHT_IQ4_NL)
/// The four values that the nibbles of a word select (bytes of 0 to 15).
uint table_bytes(uint nibbles) {
  uint word = 0;
  [[unroll]] for (int i = 0; i < 4; ++i) {
    const uint index = bitfieldExtract(nibbles, 8 * i, 4);
    const uint low = (index & 4u) != 0 ? kTableBytes.y : kTableBytes.x;
    const uint high = (index & 4u) != 0 ? kTableBytes.w : kTableBytes.z;
    const uint four = (index & 8u) != 0 ? high : low;
    word |= bitfieldExtract(four, int(index & 3u) * 8, 8) << (8 * i);
  }
  return word;
}
#endif

/// Scale and offset of both halves of a block.
void read_weight_scales(WeightTile t, uint block, out vec2 scale, out vec2 offset) {
  offset = vec2(0);
#if defined(WEIGHT_Q8_0) || defined(WEIGHT_IQ4_NL)
  scale = block == 0 ? t.scale.xx : t.scale.yy;
#elif defined(WEIGHT_Q4_0)
  scale = (block == 0 ? t.scale.xx : t.scale.yy) * 0.0625;
#elif defined(WEIGHT_Q5_0)
  scale = (block == 0 ? t.scale.xx : t.scale.yy) * 0.125;
#elif defined(WEIGHT_Q4_1) || defined(WEIGHT_Q5_1)
  const vec2 both = exact_halves(weight_word(t, block));
  scale = both.xx;
  offset = both.yy;
#elif defined(WEIGHT_Q4_K) || defined(WEIGHT_Q5_K)
  const vec2 both = k_scales(t, block);
  scale = both.xx;
  offset = -both.yy;
#else
  const uint scales = t.header[block >> 1] >> ((block & 1u) != 0 ? 16 : 0);
#if defined(WEIGHT_Q2_K)
  scale = t.scale.x * vec2(scales & 15u, (scales >> 8) & 15u);
  offset = -t.scale.y * vec2((scales >> 4) & 15u, (scales >> 12) & 15u);
#elif defined(WEIGHT_Q3_K)
  scale = t.scale.x * 0.03125 * vec2(signed_byte(scales, 0), signed_byte(scales, 1));
#elif defined(WEIGHT_Q6_K)
  scale = t.scale.x * 0.25 * vec2(signed_byte(scales, 0), signed_byte(scales, 1));
#endif
#endif
}

void read_weight_bytes(WeightTile t, uint block, out WeightBytes w) {
  read_weight_scales(t, block, w.scale, w.offset);
#if defined(WEIGHT_Q8_0)
  [[unroll]] for (int u = 0; u < 2; ++u) {
    const uvec4 unit = weight_unit(t, 2 * block + u);
    [[unroll]] for (int k = 0; k < 4; ++k) w.q[4 * u + k] = int(unit[k]);
  }
#else

#if defined(WEIGHT_Q2_K) || defined(WEIGHT_Q3_K)
  const uvec4 unit = weight_unit(t, 1 + (block >> 1));
#elif defined(WEIGHT_Q4_K) || defined(WEIGHT_Q5_K)
  const uvec4 unit = weight_unit(t, 1 + block);
#else
  const uvec4 unit = weight_unit(t, block);
#endif
#if defined(WEIGHT_Q5_0)
  const uint high = weight_word(t, 1 + block);
#elif defined(WEIGHT_Q5_1)
  const uint high = weight_word(t, 2 + block);
#elif defined(WEIGHT_Q3_K)
  const uint high = weight_unit(t, 5 + (block >> 2))[block & 3u];
#elif defined(WEIGHT_Q5_K)
  const uint high = weight_unit(t, 9 + (block >> 2))[block & 3u];
#elif defined(WEIGHT_Q6_K)
  const uvec4 high = weight_unit(t, 8 + (block >> 1));
#endif
  [[unroll]] for (int h = 0; h < 2; ++h) {
#if defined(WEIGHT_Q2_K) || defined(WEIGHT_Q3_K)
    const uint pairs = (block & 1u) != 0 ? unit[2 + h] : unit[h];
#elif defined(WEIGHT_Q6_K)
    const uint pairs = (block & 1u) != 0 ? high[2 + h] : high[h];
#endif
    [[unroll]] for (int k = 0; k < 4; ++k) {
#if defined(WEIGHT_Q4_0)
      const uint word = nibble_bytes(unit, h, k, 4);
#elif defined(WEIGHT_IQ4_NL)
      const uint word = table_bytes(nibble_bytes(unit, h, k, 0));
#elif defined(WEIGHT_Q4_1) || defined(WEIGHT_Q4_K)
      const uint word = nibble_bytes(unit, h, k, 0);
#elif defined(WEIGHT_Q5_0)
      const uint word = nibble_bytes(unit, h, k, 3) | high_bit_bytes(high, h, k, 7);
#elif defined(WEIGHT_Q5_1) || defined(WEIGHT_Q5_K)
      const uint word = nibble_bytes(unit, h, k, 0) | high_bit_bytes(high, h, k, 4);
#elif defined(WEIGHT_Q2_K)
      const uint word = pair_bytes(pairs, k, 0);
#elif defined(WEIGHT_Q3_K)
      const uint word = pair_bytes(pairs, k, 5) | high_bit_bytes(high, h, k, 7);
#elif defined(WEIGHT_Q6_K)
      const uint word = nibble_bytes(unit, h, k, 2) | pair_bytes(pairs, k, 6);
#endif
      w.q[4 * h + k] = int(word);
    }
  }
#endif
}

#endif
