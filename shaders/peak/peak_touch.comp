#version 460
#extension GL_GOOGLE_include_directive : require

#include "common/buffers.glsl"
#include "peak/peak_touch.h"

// The least a dispatch can do: one invocation of one workgroup writes one word.
layout(local_size_x_id = 0) in;

void main() {
  if (gl_LocalInvocationIndex == 0) Uints(pc.y).v[0] = pc.value;
}
