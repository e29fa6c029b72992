#version 460

#include "common/buffers.glsl"
#include "lora/lora_expand.h"
#include "lora/lora_rows.glsl"

// y += B t: a workgroup takes workgroup_size outputs of LORA_ROWS rows.

/// A sum with four ranks more.
float with_ranks(float sum, vec4 weights, vec4 ranks) {
  sum = fma(weights.x, ranks.x, sum);
  sum = fma(weights.y, ranks.y, sum);
  sum = fma(weights.z, ranks.z, sum);
  return fma(weights.w, ranks.w, sum);
}

void main() {
  const uint col = gl_WorkGroupID.x * workgroup_size + gl_LocalInvocationIndex;
  if (col >= pc.n) return;
  const uint first_row = gl_WorkGroupID.y * LORA_ROWS;
  read_adapters(pc.adapters, first_row, pc.rows - first_row);
  Vec4s b = Vec4s(pc.b);
  Vec4s t = Vec4s(pc.t);
  Floats y = Floats(pc.y);
  float sums[LORA_ROWS];
  [[unroll]] for (uint r = 0; r < LORA_ROWS; ++r) sums[r] = 0.0;
  if (alike) {
    if (adapters[0] == 0) return;
    const uint first_b = (adapters[0] - 1) * pc.n_quads * pc.b_stride + col;
    for (uint quad = 0; quad < pc.n_quads; ++quad) {
      const vec4 weights = b.v[first_b + quad * pc.b_stride];
      [[unroll]] for (uint r = 0; r < LORA_ROWS; ++r) {
        if (adapters[r] == 0) continue;
        sums[r] = with_ranks(sums[r], weights, t.v[(first_row + r) * pc.n_quads + quad]);
      }
    }
  } else {
    [[unroll]] for (uint r = 0; r < LORA_ROWS; ++r) {
      if (adapters[r] == 0) continue;
      const uint first_b = (adapters[r] - 1) * pc.n_quads * pc.b_stride + col;
      for (uint quad = 0; quad < pc.n_quads; ++quad) {
        sums[r] = with_ranks(sums[r], b.v[first_b + quad * pc.b_stride],
                             t.v[(first_row + r) * pc.n_quads + quad]);
      }
    }
  }
  [[unroll]] for (uint r = 0; r < LORA_ROWS; ++r) {
    if (adapters[r] != 0) y.v[(first_row + r) * pc.y_stride + col] += sums[r];
  }
}
