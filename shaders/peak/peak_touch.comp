#version 460

#include "common/buffers.glsl"
#include "peak/peak_touch.h"

// The least a dispatch can do: one invocation of one workgroup writes one word.

void main() {
  if (gl_LocalInvocationIndex == 0) Uints(pc.y).v[0] = pc.value;
}
