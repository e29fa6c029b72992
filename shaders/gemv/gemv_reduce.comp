#version 460

#include "common/buffers.glsl"
#include "gemv/gemv_reduce.h"

// y = the sum of what gemv_subgroup's splits of K left, added in their order; or y += it, and what a norm of y
// wants besides (gemv_finish.glsl). A workgroup takes workgroup_size columns of one row. All loads are issued
// before the first addition, those past the last split from the last one again.

shared float partial[workgroup_size];  // squares

float sum_of_splits(uint row, uint col) {
  const uint first = row * pc.n + col;
  float parts[max_splits];
  [[unroll]] for (uint s = 0; s < max_splits; ++s) {
    parts[s] = Floats(pc.partials).v[first + min(s, pc.splits - 1) * (pc.rows * pc.n)];
  }
  float sum = parts[0];
  [[unroll]] for (uint s = 1; s < max_splits; ++s) sum = s < pc.splits ? sum + parts[s] : sum;
  return sum;
}

/// Returns what y becomes.
float add_sum(uint at, uint col, float sum) {
  const float value = Floats(pc.y).v[at] + sum;
  Floats(pc.y).v[at] = value;
  Floats(pc.normed).v[at] = value * Floats(pc.norm).v[col];
  return value;
}

void main() {
  const uint lane = gl_LocalInvocationIndex;
  const uint col = gl_WorkGroupID.x * workgroup_size + lane;
  const uint row = gl_WorkGroupID.y;
  const uint at = row * pc.y_stride + col;
  const bool added = (pc.finish & GEMV_ADDED) != 0;
  float value = 0.0;
  if (col < pc.n) {
    value = sum_of_splits(row, col);
    if (added) {
      value = add_sum(at, col, value);
    } else {
      Floats(pc.y).v[at] = value;
    }
  }
  if (!added) return;
  partial[lane] = value * value;
  barrier();
  if (lane % GEMV_SQUARES != 0 || col >= pc.n) return;
  float sum = partial[lane];
  [[unroll]] for (uint s = 1; s < GEMV_SQUARES; ++s) sum += partial[lane + s];
  const uint stride = (pc.y_stride + GEMV_SQUARES - 1) / GEMV_SQUARES;
  Floats(pc.squares).v[row * stride + col / GEMV_SQUARES] = sum;
}
