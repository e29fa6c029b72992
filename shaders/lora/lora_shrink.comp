#version 460

#include "common/buffers.glsl"
#include "lora/lora_rows.glsl"
#include "lora/lora_shrink.h"

// t = A x: a workgroup takes four ranks of LORA_ROWS rows, whose products its lanes share out.

shared vec4 partial[workgroup_size];

/// The sum over all lanes.
vec4 total(uint lane, vec4 own) {
  barrier();  // what was in `partial` has been read
  partial[lane] = own;
  barrier();
  for (uint width = workgroup_size / 2; width > 0; width /= 2) {
    if (lane < width) partial[lane] += partial[lane + width];
    barrier();
  }
  return partial[0];
}

void main() {
  const uint lane = gl_LocalInvocationIndex;
  const uint quad = gl_WorkGroupID.x;
  const uint first_row = gl_WorkGroupID.y * LORA_ROWS;
  read_adapters(pc.adapters, first_row, pc.rows - first_row);
  Vec4s a = Vec4s(pc.a);
  Floats x = Floats(pc.x);
  vec4 sums[LORA_ROWS];
  [[unroll]] for (uint r = 0; r < LORA_ROWS; ++r) sums[r] = vec4(0.0);
  if (alike) {
    if (adapters[0] == 0) return;
    const uint first_a = ((adapters[0] - 1) * pc.n_quads + quad) * pc.n;
    for (uint i = lane; i < pc.n; i += workgroup_size) {
      const vec4 weights = a.v[first_a + i];
      [[unroll]] for (uint r = 0; r < LORA_ROWS; ++r) {
        if (adapters[r] == 0) continue;
        sums[r] = fma(weights, vec4(x.v[(first_row + r) * pc.x_stride + i]), sums[r]);
      }
    }
  } else {
    [[unroll]] for (uint r = 0; r < LORA_ROWS; ++r) {
      if (adapters[r] == 0) continue;
      const uint first_a = ((adapters[r] - 1) * pc.n_quads + quad) * pc.n;
      for (uint i = lane; i < pc.n; i += workgroup_size) {
        sums[r] = fma(a.v[first_a + i], vec4(x.v[(first_row + r) * pc.x_stride + i]), sums[r]);
      }
    }
  }
  [[unroll]] for (uint r = 0; r < LORA_ROWS; ++r) {
    if (adapters[r] == 0) continue;
    const vec4 sum = total(lane, sums[r]);
    if (lane == 0) Vec4s(pc.t).v[(first_row + r) * pc.n_quads + quad] = sum;
  }
}
