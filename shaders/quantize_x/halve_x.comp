#version 460

#include "common/buffers.glsl"
#include "common/half.glsl"
#include "quantize_x/quantize_x.h"

// A lane writes a unit of eight halves; workgroups are [units of a row][row].

/// Four neighbours in the order of HalvedX; zeros past the last column.
uvec2 halved_quad(uint row, uint quad) {
  const vec4 x = Vec4s(pc.x).v[row * (pc.x_stride / 4) + min(quad, pc.k / 4 - 1)];
  const uvec2 halves = uvec2(half2_bits(x.x, x.z), half2_bits(x.y, x.w));
  return quad < pc.k / 4 ? halves : uvec2(0);
}

void main() {
  const uint n_units = (pc.k + HALVED_COLS - 1) / HALVED_COLS * (HALVED_COLS / 8);
  const uint unit = gl_WorkGroupID.x * workgroup_size + gl_LocalInvocationIndex;
  const uint row = gl_WorkGroupID.y;
  if (unit >= n_units) return;
  Uvec4s(pc.quants).v[row * n_units + unit] =
      uvec4(halved_quad(row, 2 * unit), halved_quad(row, 2 * unit + 1));
}
