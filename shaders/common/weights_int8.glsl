// Quantised weights as they are: bytes and what they are multiplied with, for integer dot products and
// where sums of products are cheaper to scale than weights.
// Included after common/weights.glsl, whose tiles it reads; not where that defines WEIGHT_FLOATS.
//
//   WeightBytes w;
//   read_weight_bytes(t, block, w);
//
// gives the same columns as read_weight_block: weight i of the block is exactly
//
//   w.scale[h] * byte(w.q[i / 4], i % 4) + w.offset[h]      h = i / 16, bytes signed
//
// where scale and offset are those of the half block; without kHalfScales both halves have one, and
// without kOffsets the offset is zero.
#ifndef PUMICE_SHADERS_COMMON_WEIGHTS_INT8_GLSL
#define PUMICE_SHADERS_COMMON_WEIGHTS_INT8_GLSL

#ifdef WEIGHT_FLOATS
#error "these weights are no integers"
#endif

struct WeightBytes {
  int q[8];  // bytes 4i … 4i + 3 of the block
  vec2 scale;
  vec2 offset;
};

void read_weight_bytes(WeightTile t, uint block, out WeightBytes w) {
  read_weight_scales(t, block, w.scale, w.offset);
  const WeightBlock b = open_weight_block(t, block);
  [[unroll]] for (int h = 0; h < 2; ++h) {
    [[unroll]] for (int k = 0; k < 4; ++k) w.q[4 * h + k] = int(weight_codes(b, h, k));
  }
}

#endif
