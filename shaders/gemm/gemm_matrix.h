// Interface of gemm_matrix.comp.
#ifndef PUMICE_SHADERS_GEMM_MATRIX_H
#define PUMICE_SHADERS_GEMM_MATRIX_H

#include "gemm/gemm_push.h"

// A workgroup computes tile_rows × tile_cols of y, each of its subgroups part_rows × part_cols of
// that, as products of the device's matrix_m × matrix_n × matrix_k.
#define GEMM_MATRIX_SPEC(CONSTANT)                                                     \
  CONSTANT(0, uint, workgroup_size, 32) /* subgroup_size × parts of the tile */       \
  CONSTANT(1, uint, subgroup_size, 32)                                                 \
  CONSTANT(2, uint, tile_rows, 16)                                                     \
  CONSTANT(3, uint, tile_cols, 16)                                                     \
  CONSTANT(4, uint, tile_k, 32)    /* columns of x in shared memory: 32 or 64 */       \
  CONSTANT(5, uint, part_rows, 16) /* a multiple of matrix_m that divides tile_rows */ \
  CONSTANT(6, uint, part_cols, 16) /* a multiple of matrix_n that divides tile_cols */ \
  CONSTANT(7, uint, matrix_m, 16)                                                      \
  CONSTANT(8, uint, matrix_n, 16)                                                      \
  CONSTANT(9, uint, matrix_k, 16) /* divides tile_k */                                 \
  CONSTANT(10, uint, buffers, 2)  /* of a step in shared memory: 1 or 2 */
PUMICE_SPEC_CONSTANTS(GemmMatrixSpec, GEMM_MATRIX_SPEC)

#endif
