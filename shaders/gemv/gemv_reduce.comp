#version 460

#include "common/buffers.glsl"
#include "gemv/gemv_reduce.h"

// y = the sum of what gemv_subgroup's splits of K left, added in their order. A workgroup takes
// workgroup_size columns of one row. All loads are issued before the first addition, those past the
// last split from the last one again.

void main() {
  const uint col = gl_WorkGroupID.x * workgroup_size + gl_LocalInvocationIndex;
  const uint row = gl_WorkGroupID.y;
  if (col >= pc.n) return;
  const uint first = row * pc.n + col;
  float parts[max_splits];
  [[unroll]] for (uint s = 0; s < max_splits; ++s) {
    parts[s] = Floats(pc.partials).v[first + min(s, pc.splits - 1) * (pc.rows * pc.n)];
  }
  float sum = parts[0];
  [[unroll]] for (uint s = 1; s < max_splits; ++s) sum = s < pc.splits ? sum + parts[s] : sum;
  Floats(pc.y).v[row * pc.y_stride + col] = sum;
}
