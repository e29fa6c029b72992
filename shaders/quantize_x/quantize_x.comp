#version 460

#include "common/buffers.glsl"
#include "quantize_x/quantize_x.h"

// Eight lanes take a block of 32 values, four each; workgroups are [block group of a row][row].
// quantize_x.hpp says what is computed.

const uint kBlockLanes = 8;
// The reciprocal of smaller maxima could overflow: such blocks become zero.
const float kSmallest = 1e-30;

shared float largest[workgroup_size];
shared int sums[workgroup_size];

void main() {
  const uint lane = gl_LocalInvocationIndex;
  const uint quad = gl_WorkGroupID.x * workgroup_size + lane;
  const uint row = gl_WorkGroupID.y;
  const uint block = quad / kBlockLanes;
  const bool inside = quad < pc.k / 4;
  const vec4 x = Vec4s(pc.x).v[row * (pc.x_stride / 4) + min(quad, pc.k / 4 - 1)];

  const vec4 magnitude = abs(x);
  largest[lane] = max(max(magnitude.x, magnitude.y), max(magnitude.z, magnitude.w));
  barrier();
  const uint first = lane / kBlockLanes * kBlockLanes;
  float most = 0.0;
  [[unroll]] for (uint i = 0; i < kBlockLanes; ++i) most = max(most, largest[first + i]);
  if (most < kSmallest) most = 0.0;

  // Division is not exact in Vulkan: the scale, which products are made with, is a multiplication;
  // the reciprocal only decides ties.
  precise const float scale = most * (1.0 / 127.0);
  const float inverse = most > 0.0 ? 127.0 / most : 0.0;
  const ivec4 q = ivec4(clamp(roundEven(x * inverse), -127.0, 127.0));
  sums[lane] = q.x + q.y + q.z + q.w;
  const uint at = block * pc.rows + row;
  if (inside) {
    Uints(pc.quants).v[at * kBlockLanes + lane % kBlockLanes] =
        uint(q.x & 0xFF) | uint(q.y & 0xFF) << 8 | uint(q.z & 0xFF) << 16 | uint(q.w) << 24;
  }
  barrier();
  if (inside && lane % kBlockLanes == 0) {
    const int low = sums[lane] + sums[lane + 1] + sums[lane + 2] + sums[lane + 3];
    const int high = sums[lane + 4] + sums[lane + 5] + sums[lane + 6] + sums[lane + 7];
    Uvec2s(pc.scales).v[at] = uvec2(floatBitsToUint(scale), uint(low & 0xFFFF) | uint(high) << 16);
  }
}
