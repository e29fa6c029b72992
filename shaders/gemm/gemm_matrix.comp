#version 460
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require

#include "common/weights_halves.glsl"
#include "gemm/gemm_matrix.h"
#include "gemm/gemm_rows.glsl"

// y = x · Wᵀ on matrix cores: x in halves (HalvedX), weights rounded to them, sums fp32. A step takes
// tile_k columns of x and W: while the subgroups multiply what is in shared memory, every invocation
// loads its share of the next step into registers, the weights as they are, and decodes and stores it
// afterwards: into the other buffer, or into the only one once all have read it.
//
// Steps are whole: past the last column x is zero, and weights are zero or copies. Rows and columns of y
// past the end are computed from copies of the last ones and not stored.

const uint kBlock = 32;
const uint kBlocks = tile_k / kBlock;  // of weights in a step

// Shared memory holds units of 16 bytes. Rows are padded by one: 8 rows then lie in different banks, and
// every row starts where cooperative matrices may be loaded from.
const uint kHalfBytes = 2;
const uint kUnitHalves = 16 / kHalfBytes;
const uint kRowUnits = tile_k / kUnitHalves;
const uint kStride = kRowUnits + 1;
shared uvec4 x_tile[buffers][tile_rows * kStride];
shared uvec4 w_tile[buffers][tile_cols * kStride];

const uint kPartsAcross = tile_cols / part_cols;
const uint kSubgroups = workgroup_size / subgroup_size;
shared float y_part[kSubgroups][matrix_m * matrix_n];

const uint kUnits = tile_rows * kRowUnits;
const uint kUnitsPerLane = (kUnits + workgroup_size - 1) / workgroup_size;
const uint kRuns = tile_cols * kBlocks;  // of 32 weights
const uint kRunsPerLane = (kRuns + workgroup_size - 1) / workgroup_size;

uvec4 next_x[kUnitsPerLane];
HeldWeights next_w[kRunsPerLane];

const uint kMatrixRows = part_rows / matrix_m;
const uint kMatrixCols = part_cols / matrix_n;
coopmat<float, gl_ScopeSubgroup, matrix_m, matrix_n, gl_MatrixUseAccumulator>
    sums[kMatrixRows * kMatrixCols];

layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer HalvedUnits {
  uvec4 v[];
};

uint unit_of(uint i) { return min(gl_LocalInvocationIndex + i * workgroup_size, kUnits - 1); }
uint row_of_slot(uint i) { return unit_of(i) / kRowUnits; }
HOLD_X_ROWS(kUnitsPerLane)

void fetch_x(uint step) {
  // What changes from step to step is the same for all invocations.
  HalvedUnits x = HalvedUnits(address_add(pc.x, step * tile_k * kHalfBytes));
  [[unroll]] for (uint i = 0; i < kUnitsPerLane; ++i) {
    next_x[i] = x.v[x_row_of_slot(i) / 2 + unit_of(i) % kRowUnits];
  }
}

void fetch_w(uint step) {
  [[unroll]] for (uint i = 0; i < kRunsPerLane; ++i) {
    const uint run = min(gl_LocalInvocationIndex + i * workgroup_size, kRuns - 1);
    const uint row = weight_row(first_tile_col + run % tile_cols);
    const uint first = step * kBlocks;
    uint tile = first / kTileBlocks;
    uint block = first % kTileBlocks + run / tile_cols;
    if (kTileBlocks < kBlocks) {  // tiles of one block, of which the last step may lack some
      tile = min(first + block, pc.n_col_tiles - 1);
      block = 0;
    }
    next_w[i] = hold_weights32(pc.weights, pc.n_col_tiles, row, tile, block);
  }
}

void store_step(uint buffer_index) {
  [[unroll]] for (uint i = 0; i < kUnitsPerLane; ++i) {
    const uint unit = gl_LocalInvocationIndex + i * workgroup_size;
    if (kUnits % workgroup_size == 0 || unit < kUnits) {
      x_tile[buffer_index][unit / kRowUnits * kStride + unit % kRowUnits] = next_x[i];
    }
  }
  [[unroll]] for (uint i = 0; i < kRunsPerLane; ++i) {
    const uint run = gl_LocalInvocationIndex + i * workgroup_size;
    if (kRuns % workgroup_size == 0 || run < kRuns) {
      const uint at = run % tile_cols * kStride + run / tile_cols * (kBlock / kUnitHalves);
      [[unroll]] for (uint u = 0; u < kBlock / kUnitHalves; ++u) {
        w_tile[buffer_index][at + u] = weight_halves(next_w[i], u);
      }
    }
  }
}

/// By a product and not with a constant: of that Mesa's driver for NVIDIA makes sums in registers where
/// its matrix units cannot add to them, and moves all of them there and back at every step.
void clear_sums() {
  const coopmat<float16_t, gl_ScopeSubgroup, matrix_m, matrix_k, gl_MatrixUseA> x =
      coopmat<float16_t, gl_ScopeSubgroup, matrix_m, matrix_k, gl_MatrixUseA>(0.0hf);
  const coopmat<float16_t, gl_ScopeSubgroup, matrix_k, matrix_n, gl_MatrixUseB> w =
      coopmat<float16_t, gl_ScopeSubgroup, matrix_k, matrix_n, gl_MatrixUseB>(0.0hf);
  [[unroll]] for (uint i = 0; i < kMatrixRows * kMatrixCols; ++i) {
    sums[i] = coopmat<float, gl_ScopeSubgroup, matrix_m, matrix_n, gl_MatrixUseAccumulator>(0.0);
    sums[i] = coopMatMulAdd(x, w, sums[i]);
  }
}

void multiply(uint buffer_index, uint part_row, uint part_col) {
  [[unroll]] for (uint k = 0; k < tile_k; k += matrix_k) {
    coopmat<float16_t, gl_ScopeSubgroup, matrix_m, matrix_k, gl_MatrixUseA> x[kMatrixRows];
    [[unroll]] for (uint m = 0; m < kMatrixRows; ++m) {
      const uint at = (part_row + m * matrix_m) * kStride + k / kUnitHalves;
      coopMatLoad(x[m], x_tile[buffer_index], at, kStride, gl_CooperativeMatrixLayoutRowMajor);
    }
    [[unroll]] for (uint n = 0; n < kMatrixCols; ++n) {
      coopmat<float16_t, gl_ScopeSubgroup, matrix_k, matrix_n, gl_MatrixUseB> w;
      const uint at = (part_col + n * matrix_n) * kStride + k / kUnitHalves;
      coopMatLoad(w, w_tile[buffer_index], at, kStride, gl_CooperativeMatrixLayoutColumnMajor);
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

  clear_sums();
  fetch_w(0);
  fetch_x(0);
  store_step(0);
  barrier();
  for (uint step = 0; step < n_steps; ++step) {
    // After the last step: the last again, not used. A branch would keep compilers from moving the
    // multiplications between the loads and their use.
    fetch_x(min(step + 1, n_steps - 1));
    fetch_w(min(step + 1, n_steps - 1));
    multiply(step % buffers, part_row, part_col);
    if (buffers == 1) barrier();
    store_step((step + 1) % buffers);
    barrier();
  }
  store_y(part_row, part_col);
}
