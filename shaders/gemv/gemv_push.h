// Push constants of the gemv kernels. Only gemv_subgroup splits K. Of x in planes (PlanesOfX) x_stride is in
// bytes.
#ifndef PUMICE_SHADERS_GEMV_PUSH_H
#define PUMICE_SHADERS_GEMV_PUSH_H

#include "common/interface.h"

#define GEMV_PUSH(FIELD)                                                      \
  FIELD(ADDRESS, weights) /* resident tiles of n weight rows */               \
  FIELD(ADDRESS, x)       /* float [rows][x_stride], 16-byte aligned */       \
  FIELD(ADDRESS, y)       /* float [rows][y_stride], n columns are written */ \
  FIELD(ADDRESS, grid)    /* of the weights' type */                          \
  FIELD(uint, rows)       /* at most tile_rows, more than half as many */     \
  FIELD(uint, n)                                                              \
  FIELD(uint, k)        /* a multiple of 4 */                                 \
  FIELD(uint, x_stride) /* in floats, a multiple of 4 */                      \
  FIELD(uint, y_stride)                                                       \
  FIELD(uint, n_col_tiles)                                                    \
  FIELD(uint, splits) /* the grid's y, a power of two; split s writes rows s * rows … of y */
PUMICE_PUSH_CONSTANTS(GemvPush, GEMV_PUSH)

#endif
