#version 460

#include "common/activation.glsl"
#include "common/buffers.glsl"
#include "gated_activation/gated_activation.h"
#include "common/x_planes_store.glsl"

// y = activation(gate) * up. A workgroup takes 4 * workgroup_size columns of one row, a lane four of
// them.

float act(float x) { return activation(kind, x); }

void main() {
  const uint col = 4 * (gl_WorkGroupID.x * workgroup_size + gl_LocalInvocationIndex);
  const uint row = gl_WorkGroupID.y;
  const uint gate = row * 2 * pc.n + col;
  const uint out_first = row * pc.n + col;
  if (pc.n % 4 == 0) {  // then every row is aligned to 16 bytes
    vec4 y = vec4(0.0);
    if (col < pc.n) {
      const vec4 g = Vec4s(pc.gate_up).v[gate / 4];
      const vec4 up = Vec4s(pc.gate_up).v[(gate + pc.n) / 4];
      y = vec4(act(g.x), act(g.y), act(g.z), act(g.w)) * up;
      Vec4s(pc.y).v[out_first / 4] = y;
    }
    // Products of few rows may want it, which costs another pass less here.
    if (makes_planes != 0 && pc.to_planes != 0) store_planes(pc.planes, out_first / 32, y, col < pc.n);
  } else if (col < pc.n) {
    for (uint i = 0; i < min(4u, pc.n - col); ++i) {
      const float g = Floats(pc.gate_up).v[gate + i];
      Floats(pc.y).v[out_first + i] = act(g) * Floats(pc.gate_up).v[gate + pc.n + i];
    }
  }
}
