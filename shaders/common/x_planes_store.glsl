// Storing activations as common/x_planes.glsl reads them. Included after the interface, whose workgroup_size
// is a multiple of 8.
#ifndef PUMICE_SHADERS_COMMON_X_PLANES_STORE_GLSL
#define PUMICE_SHADERS_COMMON_X_PLANES_STORE_GLSL

#include "common/buffers.glsl"
#include "common/x_planes.glsl"

const uint kPlanesLanes = 8;  // of a block, each with four numbers
const float kPlanesMost = 32512.0;  // 127 * 256
// The reciprocal of smaller maxima could overflow: such blocks become zero.
const float kPlanesSmallest = 1e-30;

shared float planes_most[workgroup_size];
shared int planes_sums[workgroup_size];

uint packed_bytes(ivec4 v) {
  return uint(v.x & 0xFF) | uint(v.y & 0xFF) << 8 | uint(v.z & 0xFF) << 16 | uint(v.w) << 24;
}

/// Eight neighbouring invocations store block `block` of `planes`. All of the workgroup call it; those of
/// blocks that are not `inside` store nothing.
void store_planes(uvec2 planes, uint block, vec4 x, bool inside) {
  const uint lane = gl_LocalInvocationIndex;
  const uint quad = lane % kPlanesLanes;
  const vec4 magnitude = abs(x);
  planes_most[lane] = max(max(magnitude.x, magnitude.y), max(magnitude.z, magnitude.w));
  barrier();
  float most = 0.0;
  [[unroll]] for (uint i = 0; i < kPlanesLanes; ++i) most = max(most, planes_most[lane - quad + i]);
  if (most < kPlanesSmallest) most = 0.0;

  // Division is not exact in Vulkan: the scale, which products are made with, is a multiplication; the
  // reciprocal only decides ties.
  precise const float scale = most * (1.0 / kPlanesMost);
  const float inverse = most > 0.0 ? kPlanesMost / most : 0.0;
  const ivec4 q = ivec4(clamp(roundEven(x * inverse), -kPlanesMost, kPlanesMost));
  planes_sums[lane] = q.x + q.y + q.z + q.w;
  const uint first_word = block * (kPlanesBytes / 4);
  if (inside) {
    const ivec4 high = (q + 128) >> 8;
    Uints(planes).v[first_word + quad] = packed_bytes(high);
    Uints(planes).v[first_word + kPlanesLanes + quad] = packed_bytes(q - high * 256);
  }
  barrier();
  if (inside && quad == 0) {
    int first = 0, last = 0;
    [[unroll]] for (uint i = 0; i < kPlanesLanes / 2; ++i) {
      first += planes_sums[lane + i];
      last += planes_sums[lane + kPlanesLanes / 2 + i];
    }
    Vec4s(planes).v[first_word / 4 + kPlanesLanes / 2] =
        vec4(scale, float(first), float(last), float(first + last));
  }
}

#endif
