// Interface of gemm_i8.comp.
#ifndef PUMICE_SHADERS_GEMM_I8_H
#define PUMICE_SHADERS_GEMM_I8_H

#include "common/interface.h"

#define GEMM_I8_PUSH(FIELD)                                                   \
  FIELD(ADDRESS, weights) /* resident tiles of n weight rows */               \
  FIELD(ADDRESS, quants)  /* uvec4 [k / 32][rows][2]: QuantizedX */           \
  FIELD(ADDRESS, scales)  /* uvec2 [k / 32][rows] */                          \
  FIELD(ADDRESS, y)       /* float [rows][y_stride], n columns are written */ \
  FIELD(uint, rows)                                                           \
  FIELD(uint, n)                                                              \
  FIELD(uint, n_blocks) /* k / 32 */                                          \
  FIELD(uint, y_stride)                                                       \
  FIELD(uint, n_col_tiles)
PUMICE_PUSH_CONSTANTS(GemmI8Push, GEMM_I8_PUSH)

#define GEMM_I8_SPEC(CONSTANT)                           \
  CONSTANT(0, uint, workgroup_size, 64)                  \
  CONSTANT(1, uint, tile_rows, 16) /* rows of x */       \
  CONSTANT(2, uint, lane_cols, 1)  /* weight rows a lane owns */
PUMICE_SPEC_CONSTANTS(GemmI8Spec, GEMM_I8_SPEC)

#endif
