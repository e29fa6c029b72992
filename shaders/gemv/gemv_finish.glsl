// What becomes of a workgroup's sums, for gemv.comp and gemv_subgroup.comp: those of kSlices slices of K,
// each [tile_rows][kGroupCols], lie in `partial`. A row's bits do not depend on how many rows there are.
#ifndef PUMICE_SHADERS_GEMV_FINISH_GLSL
#define PUMICE_SHADERS_GEMV_FINISH_GLSL

#include "common/activation.glsl"
#include "gemv/gemv_finish.h"

const uint kSums = tile_rows * kGroupCols;
const uint kTurns = (kSums + workgroup_size - 1) / workgroup_size;

shared float partial[kSlices * kSums];

bool is_to(uint what) { return finishes != 0 && (pc.finish & what) != 0; }

/// Slices of each matrix: ups have the second half of them.
uint n_slices() { return is_to(GEMV_GATED) ? kSlices / 2 : kSlices; }

uint n_squares(uint columns) { return (columns + GEMV_SQUARES - 1) / GEMV_SQUARES; }

float sum_of_slices(uint first, uint i) {
  float sum = partial[first * kSums + i];
  for (uint s = 1; s < n_slices(); ++s) sum += partial[(first + s) * kSums + i];
  return sum;
}

/// A lane's share of the squares of a row of x.
float squares_of_x(uint row, uint lane) {
  const uint n = n_squares(pc.k);
  float sum = 0.0;
  for (uint i = lane; i < n; i += kGroupCols) sum += Floats(pc.squares).v[row * n + i];
  return sum;
}

/// What a row's sums are multiplied with.
float scale_of(uint row) {
  float sum = 0.0;
  for (uint i = 0; i < kGroupCols; ++i) sum += partial[row * kGroupCols + i];
  return 1.0 / sqrt(sum / float(pc.k) + pc.eps);
}

/// A sum is added to y, and the whole's square is left in `partial`.
void add_sum(uint i, uint row, uint col, float sum) {
  float value = 0.0;
  if (row < pc.rows && col < pc.n) {
    const uint at = row * pc.y_stride + col;
    value = Floats(pc.y).v[at] + sum;
    Floats(pc.y).v[at] = value;
    Floats(pc.normed).v[at] = value * Floats(pc.norm).v[col];
  }
  partial[i] = value * value;
}

void store_squares(uint i, uint row, uint col) {
  if (i % GEMV_SQUARES != 0 || row >= pc.rows || col >= pc.n) return;
  float sum = partial[i];
  [[unroll]] for (uint s = 1; s < GEMV_SQUARES; ++s) sum += partial[i + s];
  Floats(pc.squares).v[row * n_squares(pc.y_stride) + col / GEMV_SQUARES] = sum;
}

/// `partial` is full but for a barrier. `local`: of the workgroup's lanes, each once. `group`: of the columns.
void finish(uint local, uint group, uint split) {
  barrier();
  // From here on each lane writes only what it alone has read, until the next barrier.
  float sums[kTurns];
  [[unroll]] for (uint t = 0; t < kTurns; ++t) {
    const uint i = t * workgroup_size + local;
    if (i < kSums) sums[t] = sum_of_slices(0, i);
  }
  float ups[kTurns];
  if (is_to(GEMV_GATED)) {
    [[unroll]] for (uint t = 0; t < kTurns; ++t) {
      const uint i = t * workgroup_size + local;
      if (i < kSums) ups[t] = sum_of_slices(n_slices(), i);
    }
  }
  if (is_to(GEMV_SCALED)) {
    [[unroll]] for (uint t = 0; t < kTurns; ++t) {
      const uint i = t * workgroup_size + local;
      if (i < kSums) partial[i] = squares_of_x(min(i / kGroupCols, pc.rows - 1), i % kGroupCols);
    }
    barrier();
    [[unroll]] for (uint t = 0; t < kTurns; ++t) {
      const uint i = t * workgroup_size + local;
      if (i < kSums) {
        const float scale = scale_of(i / kGroupCols);
        sums[t] *= scale;
        ups[t] *= scale;
      }
    }
  }
  [[unroll]] for (uint t = 0; t < kTurns; ++t) {
    const uint i = t * workgroup_size + local;
    if (i >= kSums) break;
    const uint row = tile_rows == 1 ? 0 : i / kGroupCols;
    const uint col = group * kGroupCols + i % kGroupCols;
    if (is_to(GEMV_ADDED)) {
      add_sum(i, row, col, sums[t]);
    } else if (row < pc.rows && col < pc.n) {
      const float y = is_to(GEMV_GATED) ? activation(pc.finish >> GEMV_ACTIVATION_SHIFT, sums[t]) * ups[t]
                                           : sums[t];
      Floats(pc.y).v[(split * pc.rows + row) * pc.y_stride + col] = y;
    }
  }
  if (is_to(GEMV_ADDED)) {
    barrier();
    [[unroll]] for (uint t = 0; t < kTurns; ++t) {
      const uint i = t * workgroup_size + local;
      if (i < kSums) store_squares(i, i / kGroupCols, group * kGroupCols + i % kGroupCols);
    }
  }
}

#endif
