#version 460

#include "common/buffers.glsl"
#include "fixed_point_test.h"
#include "sampling/fixed_point.glsl"

layout(local_size_x_id = 0) in;

void main() {
  const uint i = gl_GlobalInvocationID.x;
  if (i >= pc.n) return;
  const uint word = Uints(pc.words).v[i];
  const uint next = Uints(pc.words).v[(i + 1) % pc.n];
  const float value = canonical_bits(word);
  const uvec2 total = uvec2(next, i % 4096);
  const uvec2 down = scale_floor(word, total);
  const uvec2 up = scale_ceil(word, total);
  const uint found[9] = uint[9](fixed_exp(uintBitsToFloat(word)), floatBitsToUint(value), score_key(value),
                                floatBitsToUint(score_of_key(score_key(value))),
                                philox(uvec4(i, word, 0, 0), uvec2(next, word)), down.x, down.y, up.x, up.y);
  for (uint k = 0; k < 9; ++k) Uints(pc.found).v[9 * i + k] = found[k];
}
