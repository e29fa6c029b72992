// Interface of gemm.comp.
#ifndef PUMICE_SHADERS_GEMM_H
#define PUMICE_SHADERS_GEMM_H

#include "common/interface.h"
#include "common/x_broadcast.h"

#define GEMM_PUSH(FIELD)                                                      \
  FIELD(ADDRESS, weights) /* resident tiles of n weight rows */               \
  FIELD(ADDRESS, x)       /* float [rows][x_stride], 16-byte aligned */       \
  FIELD(ADDRESS, y)       /* float [rows][y_stride], n columns are written */ \
  FIELD(uint, rows)                                                           \
  FIELD(uint, n)                                                              \
  FIELD(uint, k)        /* a multiple of 4 */                                 \
  FIELD(uint, x_stride) /* in floats, a multiple of 4 */                      \
  FIELD(uint, y_stride)                                                       \
  FIELD(uint, n_col_tiles)
PUMICE_PUSH_CONSTANTS(GemmPush, GEMM_PUSH)

#define GEMM_SPEC(CONSTANT)                                                 \
  CONSTANT(0, uint, workgroup_size, 64)                                     \
  CONSTANT(1, uint, tile_rows, 16) /* rows of x in registers: 4 × (1..) */ \
  CONSTANT(2, uint, lane_cols, 1)  /* weight rows a lane owns */
PUMICE_SPEC_CONSTANTS(GemmSpec, GEMM_SPEC)

#endif
