#version 460

#include "common/buffers.glsl"
#include "lora/lora_shrink.h"

// t = A x: a workgroup takes four ranks of one row, whose products its lanes share out.

shared vec4 partial[workgroup_size];

/// The sum over all lanes.
vec4 total(uint lane, vec4 own) {
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
  const uint row = gl_WorkGroupID.y;
  const uint adapter = Uints(pc.adapters).v[row];
  if (adapter == 0) return;
  const uint first_a = ((adapter - 1) * pc.n_quads + quad) * pc.n;
  const uint first_x = row * pc.x_stride;
  Vec4s a = Vec4s(pc.a);
  Floats x = Floats(pc.x);
  vec4 sum = vec4(0.0);
  for (uint i = lane; i < pc.n; i += workgroup_size) {
    sum = fma(a.v[first_a + i], vec4(x.v[first_x + i]), sum);
  }
  sum = total(lane, sum);
  if (lane == 0) Vec4s(pc.t).v[row * pc.n_quads + quad] = sum;
}
