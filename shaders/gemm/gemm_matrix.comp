#version 460
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require

#include "common/weights.glsl"
#include "common/x_quads.glsl"
#include "gemm/gemm_matrix.h"
#include "gemm/gemm_rows.glsl"

// y = x · Wᵀ on matrix cores: inputs rounded to fp16, sums fp32. A step takes tile_k columns of x and
// W: while the subgroups multiply what is in shared memory, every invocation loads and dequantises
// its share of the next step into registers, and stores it afterwards: into the other buffer, or
// into the only one once all have read it.
//
// Values beyond fp16's range saturate at ±65504, so that finite inputs never give infinity - infinity.
// Rows and columns past the end are computed from copies of the last ones and not stored.

const uint kBlock = 32;
const uint kBlocks = tile_k / kBlock;  // of weights in a step

// Rows of shared tiles are padded by 16 bytes: 8 rows then lie in different banks, and every row
// starts where cooperative matrices may be loaded from.
const uint kStride = tile_k / 4 + 2;  // in f16vec4
shared f16vec4 x_tile[buffers][tile_rows * kStride];
shared f16vec4 w_tile[buffers][tile_cols * kStride];

const uint kPartsAcross = tile_cols / part_cols;
const uint kSubgroups = workgroup_size / subgroup_size;
shared float y_part[kSubgroups][matrix_m * matrix_n];

const uint kQuads = tile_rows * (tile_k / 4);
const uint kQuadsPerLane = (kQuads + workgroup_size - 1) / workgroup_size;
const uint kRuns = tile_cols * kBlocks;  // of 32 weights
const uint kRunsPerLane = (kRuns + workgroup_size - 1) / workgroup_size;

f16vec4 next_x[kQuadsPerLane];
f16vec4 next_w[kRunsPerLane][kBlock / 4];

const uint kMatrixRows = part_rows / matrix_m;
const uint kMatrixCols = part_cols / matrix_n;
coopmat<float, gl_ScopeSubgroup, matrix_m, matrix_n, gl_MatrixUseAccumulator>
    sums[kMatrixRows * kMatrixCols];

f16vec4 to_half(vec4 value) {
  return min(max(f16vec4(value), f16vec4(-65504.0hf)), f16vec4(65504.0hf));
}

uint quad_of(uint i) { return min(gl_LocalInvocationIndex + i * workgroup_size, kQuads - 1); }
uint row_of_slot(uint i) { return quad_of(i) / (tile_k / 4); }
HOLD_X_ROWS(kQuadsPerLane)

void fetch_x(uint step) {
  [[unroll]] for (uint i = 0; i < kQuadsPerLane; ++i) {
    const uint column = step * (tile_k / 4) + quad_of(i) % (tile_k / 4);
    const vec4 x = load_quad(pc.x, x_row_of_slot(i) + min(column, pc.k / 4 - 1));
    // Weights past the last column are zero or repeat others, so x must be zero there.
    next_x[i] = to_half(column < pc.k / 4 ? x : vec4(0.0));
  }
}

void fetch_w(uint step) {
  const uint n_blocks = (pc.k + kBlock - 1) / kBlock;
  [[unroll]] for (uint i = 0; i < kRunsPerLane; ++i) {
    const uint run = gl_LocalInvocationIndex + i * workgroup_size;
    const uint row = weight_row(first_tile_col + run % tile_cols);
    const uint block = min(step * kBlocks + run / tile_cols, n_blocks - 1);
    float w[kBlock];
    load_weights32(pc.weights, pc.n_col_tiles, row, block, w);
    [[unroll]] for (uint k = 0; k < kBlock / 4; ++k) {
      next_w[i][k] = to_half(vec4(w[4 * k], w[4 * k + 1], w[4 * k + 2], w[4 * k + 3]));
    }
  }
}

void store_step(uint buffer_index) {
  [[unroll]] for (uint i = 0; i < kQuadsPerLane; ++i) {
    const uint quad = gl_LocalInvocationIndex + i * workgroup_size;
    if (kQuads % workgroup_size == 0 || quad < kQuads) {
      x_tile[buffer_index][quad / (tile_k / 4) * kStride + quad % (tile_k / 4)] = next_x[i];
    }
  }
  [[unroll]] for (uint i = 0; i < kRunsPerLane; ++i) {
    const uint run = gl_LocalInvocationIndex + i * workgroup_size;
    if (kRuns % workgroup_size == 0 || run < kRuns) {
      const uint at = run % tile_cols * kStride + run / tile_cols * (kBlock / 4);
      [[unroll]] for (uint k = 0; k < kBlock / 4; ++k) w_tile[buffer_index][at + k] = next_w[i][k];
    }
  }
}

void multiply(uint buffer_index, uint part_row, uint part_col) {
  [[unroll]] for (uint k = 0; k < tile_k; k += matrix_k) {
    coopmat<float16_t, gl_ScopeSubgroup, matrix_m, matrix_k, gl_MatrixUseA> x[kMatrixRows];
    [[unroll]] for (uint m = 0; m < kMatrixRows; ++m) {
      coopMatLoad(x[m], x_tile[buffer_index], (part_row + m * matrix_m) * kStride + k / 4, kStride,
                  gl_CooperativeMatrixLayoutRowMajor);
    }
    [[unroll]] for (uint n = 0; n < kMatrixCols; ++n) {
      coopmat<float16_t, gl_ScopeSubgroup, matrix_k, matrix_n, gl_MatrixUseB> w;
      coopMatLoad(w, w_tile[buffer_index], (part_col + n * matrix_n) * kStride + k / 4, kStride,
                  gl_CooperativeMatrixLayoutColumnMajor);
      [[unroll]] for (uint m = 0; m < kMatrixRows; ++m) {
        sums[m * kMatrixCols + n] = coopMatMulAdd(x[m], w, sums[m * kMatrixCols + n]);
      }
    }
  }
}

// How an invocation stores a matrix: kElements / kRun rows of kRun neighbouring elements.
const uint kShare = matrix_m * matrix_n / subgroup_size;
const uint kElements = kShare > 0 ? kShare : 1;
const uint kRun = kElements < matrix_n ? kElements : matrix_n;

/// Through shared memory: a cooperative matrix is stored whole or not at all. All loops unroll: one
/// left inside would keep RADV from unrolling the outer one, and the sums out of registers.
void store_y(uint part_row, uint part_col) {
  Floats y = Floats(pc.y);
  const uint from = min(gl_SubgroupInvocationID * kElements, matrix_m * matrix_n - kElements);
  const uint row_0 = part_row + from / matrix_n;
  const uint col_0 = first_tile_col + part_col + from % matrix_n;
  [[unroll]] for (uint i = 0; i < kMatrixRows * kMatrixCols; ++i) {
    coopMatStore(sums[i], y_part[gl_SubgroupID], 0, matrix_n, gl_CooperativeMatrixLayoutRowMajor);
    subgroupBarrier();
    [[unroll]] for (uint r = 0; r < kElements / kRun; ++r) {
      const uint row = row_0 + i / kMatrixCols * matrix_m + r;
      const uint col = col_0 + i % kMatrixCols * matrix_n;
      const uint at = y_row(row) + col;
      [[unroll]] for (uint c = 0; c < kRun; ++c) {
        if (has_row(row) && has_col(col + c)) {
          y.v[at + c] = biased(y_part[gl_SubgroupID][from + r * kRun + c], col + c);
        }
      }
    }
    subgroupBarrier();
  }
}

void main() {
  use_weight_grid(pc.grid);
  if (!open_tile(tile_rows, tile_cols)) return;
  hold_x_rows();
  const uint part_row = gl_SubgroupID / kPartsAcross * part_rows;
  const uint part_col = gl_SubgroupID % kPartsAcross * part_cols;
  const uint n_steps = (pc.k + tile_k - 1) / tile_k;

  [[unroll]] for (uint i = 0; i < kMatrixRows * kMatrixCols; ++i) {
    sums[i] = coopmat<float, gl_ScopeSubgroup, matrix_m, matrix_n, gl_MatrixUseAccumulator>(0.0);
  }
  fetch_w(0);
  fetch_x(0);
  store_step(0);
  barrier();
  for (uint step = 0; step < n_steps; ++step) {
    // Past the last step: zeros and the last weights again, not used. A branch would keep compilers
    // from moving the multiplications between the loads and their use.
    fetch_w(step + 1);
    fetch_x(step + 1);
    multiply(step % buffers, part_row, part_col);
    if (buffers == 1) barrier();
    store_step((step + 1) % buffers);
    barrier();
  }
  store_y(part_row, part_col);
}
