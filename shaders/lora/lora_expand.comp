#version 460

#include "common/buffers.glsl"
#include "lora/lora_expand.h"

// y += B t: a workgroup takes workgroup_size outputs of one row.

void main() {
  const uint col = gl_WorkGroupID.x * workgroup_size + gl_LocalInvocationIndex;
  const uint row = gl_WorkGroupID.y;
  const uint adapter = Uints(pc.adapters).v[row];
  if (adapter == 0 || col >= pc.n) return;
  const uint first_b = (adapter - 1) * pc.n_quads * pc.b_stride + col;
  Vec4s b = Vec4s(pc.b);
  Vec4s t = Vec4s(pc.t);
  Floats y = Floats(pc.y);
  float sum = 0.0;
  for (uint quad = 0; quad < pc.n_quads; ++quad) {
    const vec4 weights = b.v[first_b + quad * pc.b_stride];
    const vec4 ranks = t.v[row * pc.n_quads + quad];
    sum = fma(weights.x, ranks.x, sum);
    sum = fma(weights.y, ranks.y, sum);
    sum = fma(weights.z, ranks.z, sum);
    sum = fma(weights.w, ranks.w, sum);
  }
  y.v[row * pc.y_stride + col] += sum;
}
