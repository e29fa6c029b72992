// Interface of gemv.comp.
#ifndef PUMICE_SHADERS_GEMV_H
#define PUMICE_SHADERS_GEMV_H

#include "common/interface.h"
#include "common/x_broadcast.h"

#define GEMV_PUSH(FIELD)                                                      \
  FIELD(ADDRESS, weights) /* resident tiles of n weight rows */               \
  FIELD(ADDRESS, x)       /* float [rows][x_stride], 16-byte aligned */       \
  FIELD(ADDRESS, y)       /* float [rows][y_stride], n columns are written */ \
  FIELD(uint, rows)       /* at most tile_rows */                             \
  FIELD(uint, n)                                                              \
  FIELD(uint, k)        /* a multiple of 4 */                                 \
  FIELD(uint, x_stride) /* in floats, a multiple of 4 */                      \
  FIELD(uint, y_stride)                                                       \
  FIELD(uint, n_col_tiles)
PUMICE_PUSH_CONSTANTS(GemvPush, GEMV_PUSH)

#define GEMV_SPEC(CONSTANT)                                           \
  CONSTANT(0, uint, workgroup_size, 64) /* 32 lanes × slices of K */ \
  CONSTANT(1, uint, tile_rows, 1)       /* rows of x in registers */  \
  CONSTANT(2, uint, lane_cols, 1)       /* weight rows a lane owns */ \
  CONSTANT(3, uint, unroll, 1)          /* blocks in flight, not more than a tile's */
PUMICE_SPEC_CONSTANTS(GemvSpec, GEMV_SPEC)

#endif
