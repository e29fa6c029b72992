#version 460

#include "common/buffers.glsl"
#include "rope/rope.h"

// An invocation rotates one pair of one row; gl_WorkGroupID.x is the row.

const uint half_dims = rope_dims / 2;

void main() {
  const uint row = gl_WorkGroupID.x;
  const uint task = gl_WorkGroupID.y * workgroup_size + gl_LocalInvocationIndex;
  if (task >= pc.n_heads * half_dims) return;
  const uint pair = task % half_dims;
  const uint head = row * pc.x_stride + task / half_dims * head_dim;
  const uint first = head + (halves != 0 ? pair : 2 * pair);
  const uint second = first + (halves != 0 ? half_dims : 1);
  const vec2 angle = Vec2s(pc.rope_table).v[Uints(pc.positions).v[row] * half_dims + pair];
  Floats x = Floats(pc.x);
  const float a = x.v[first];
  const float b = x.v[second];
  x.v[first] = fma(a, angle.x, b * -angle.y);
  x.v[second] = fma(b, angle.x, a * angle.y);
}
