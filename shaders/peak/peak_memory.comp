#version 460

#include "common/buffers.glsl"
#include "peak/peak_memory.h"

// A workgroup takes a contiguous piece; in each pass a lane has four loads of 16 bytes in flight.
// PEAK_COPY writes them elsewhere, otherwise they are folded into one word that is written at the end.

void main() {
  uint at = gl_WorkGroupID.x * pc.n_passes * 4 * workgroup_size + gl_LocalInvocationIndex;
  Uvec4s source = Uvec4s(pc.source);
#ifdef PEAK_COPY
  Uvec4s target = Uvec4s(pc.target);
#else
  uvec4 folded = uvec4(0);
#endif
  for (uint pass = 0; pass < pc.n_passes; ++pass) {
    const uvec4 first = source.v[at];
    const uvec4 second = source.v[at + workgroup_size];
    const uvec4 third = source.v[at + 2 * workgroup_size];
    const uvec4 fourth = source.v[at + 3 * workgroup_size];
#ifdef PEAK_COPY
    target.v[at] = first;
    target.v[at + workgroup_size] = second;
    target.v[at + 2 * workgroup_size] = third;
    target.v[at + 3 * workgroup_size] = fourth;
#else
    folded ^= first ^ second ^ third ^ fourth;
#endif
    at += 4 * workgroup_size;
  }
#ifndef PEAK_COPY
  Uints(pc.target).v[gl_WorkGroupID.x * workgroup_size + gl_LocalInvocationIndex] =
      folded.x ^ folded.y ^ folded.z ^ folded.w;
#endif
}
