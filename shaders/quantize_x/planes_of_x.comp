#version 460

#include "quantize_x/quantize_x.h"
#include "common/x_planes_store.glsl"

// A lane takes four values; workgroups are [those of a row][row].

void main() {
  const uint quad = gl_WorkGroupID.x * workgroup_size + gl_LocalInvocationIndex;
  const uint row = gl_WorkGroupID.y;
  const uint n_quads = pc.k / 4;
  const vec4 x = Vec4s(pc.x).v[row * (pc.x_stride / 4) + min(quad, n_quads - 1)];
  store_planes(pc.quants, row * (pc.k / 32) + quad / kPlanesLanes, x, quad < n_quads);
}
