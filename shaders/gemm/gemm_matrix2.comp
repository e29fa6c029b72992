#version 460
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_NV_cooperative_matrix2 : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require

#include "common/buffers.glsl"
#include "common/weights_element.glsl"
#include "gemm/gemm_matrix2.h"

// A workgroup computes tile_rows × tile_cols of y with matrices that all its invocations share; where
// their elements live, and how they are staged, is the driver's business. Weights are decoded by a
// function called for each element as a matrix is loaded: a block of the tensor is a tile of the
// resident layout, 32 weight rows × kTileCols columns that lie together. x becomes fp16 the same way.
// What lies outside the tensors reads as zero and is not written.

layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer ResidentTile {
  uvec4 units[kTileStride];
};
layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer OneFloat { float v; };
// Tensors begin at multiples of 16 bytes, their elements anywhere.
layout(buffer_reference, std430, buffer_reference_align = 16) buffer AlignedFloats { float v[]; };

float16_t decode_weight(const in ResidentTile tile, const in uint block[2], const in uint at[2]) {
  return float16_t(weight_element(uvec2(tile), at[0], at[1]));
}

const float kLargestHalf = 65504.0;

float16_t decode_x(const in OneFloat element, const in uint block[2], const in uint at[2]) {
  return float16_t(clamp(element.v, -kLargestHalf, kLargestHalf));
}

void main() {
  const uint row = pc.first_row + gl_WorkGroupID.x * tile_rows;
  const uint col = gl_WorkGroupID.y * tile_cols;

  tensorLayoutNV<2, gl_CooperativeMatrixClampModeConstantNV> x =
      createTensorLayoutNV(2, gl_CooperativeMatrixClampModeConstantNV);
  x = setTensorLayoutDimensionNV(x, pc.rows, pc.k);
  x = setTensorLayoutStrideNV(x, pc.x_stride, 1);

  tensorLayoutNV<2, gl_CooperativeMatrixClampModeConstantNV> w =
      createTensorLayoutNV(2, gl_CooperativeMatrixClampModeConstantNV);
  w = setTensorLayoutBlockSizeNV(w, 32, kTileCols);
  w = setTensorLayoutDimensionNV(w, pc.n, pc.k);
  w = setTensorLayoutStrideNV(w, pc.n_col_tiles, 1);
  tensorViewNV<2, false, 1, 0> transposed = createTensorViewNV(2, false, 1, 0);

  coopmat<float, gl_ScopeWorkgroup, tile_rows, tile_cols, gl_MatrixUseAccumulator> sum =
      coopmat<float, gl_ScopeWorkgroup, tile_rows, tile_cols, gl_MatrixUseAccumulator>(0.0);
  for (uint k = 0; k < pc.k; k += tile_k) {
    coopmat<float16_t, gl_ScopeWorkgroup, tile_rows, tile_k, gl_MatrixUseA> a;
    coopmat<float16_t, gl_ScopeWorkgroup, tile_k, tile_cols, gl_MatrixUseB> b;
    coopMatLoadTensorNV(a, AlignedFloats(pc.x).v, 0, sliceTensorLayoutNV(x, row, tile_rows, k, tile_k),
                        decode_x);
    coopMatLoadTensorNV(b, Uvec4s(pc.weights).v, 0,
                        sliceTensorLayoutNV(w, col, tile_cols, k, tile_k), transposed,
                        decode_weight);
    sum = coopMatMulAdd(a, b, sum);
  }

  // y may be columns of a wider matrix and begin between multiples of 16 bytes.
  const uint skipped = (pc.y.x & 15u) / 4;
  tensorLayoutNV<2, gl_CooperativeMatrixClampModeConstantNV> y =
      createTensorLayoutNV(2, gl_CooperativeMatrixClampModeConstantNV);
  y = setTensorLayoutDimensionNV(y, pc.rows, skipped + pc.n);
  y = setTensorLayoutStrideNV(y, pc.y_stride, 1);
  coopMatStoreTensorNV(sum, AlignedFloats(uvec2(pc.y.x & ~15u, pc.y.y)).v, 0,
                       sliceTensorLayoutNV(y, row, tile_rows, skipped + col, tile_cols));
}
