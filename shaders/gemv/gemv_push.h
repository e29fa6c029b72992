// Push constants of the gemv kernels. Only gemv_subgroup splits K. Of x in planes (PlanesOfX) it only stores its sums,
// and x_stride is in bytes.
#ifndef PUMICE_SHADERS_GEMV_PUSH_H
#define PUMICE_SHADERS_GEMV_PUSH_H

#include "common/interface.h"
#include "gemv/gemv_finish.h"

#define GEMV_PUSH(FIELD)                                                                        \
  FIELD(ADDRESS, weights) /* resident tiles of n weight rows */                                 \
  FIELD(ADDRESS, x)       /* float [rows][x_stride], 16-byte aligned */                         \
  FIELD(ADDRESS, y)       /* float [rows][y_stride], n columns are written */                   \
  FIELD(ADDRESS, grid)    /* of the weights' type */                                            \
  FIELD(ADDRESS, squares) /* float [rows][of GEMV_SQUARES]: of x or of y */                     \
  FIELD(ADDRESS, norm)    /* float [n], if added */                                             \
  FIELD(ADDRESS, normed)  /* float [rows][y_stride]: y * norm, if added */                      \
  FIELD(uint, rows)       /* at most tile_rows, more than half as many */                       \
  FIELD(uint, n)                                                                                \
  FIELD(uint, k)        /* a multiple of 4 */                                                   \
  FIELD(uint, x_stride) /* in floats, a multiple of 4 */                                        \
  FIELD(uint, y_stride)                                                                         \
  FIELD(uint, n_col_tiles)                                                                      \
  FIELD(uint, splits) /* the grid's y, a power of two; split s writes rows s * rows … of y */ \
  FIELD(uint, tile_stride) /* of gemv_subgroup: slices of a matrix times splits */              \
  FIELD(uint, finish)      /* gemv_finish.h */                                                  \
  FIELD(uint, ups)         /* bytes from gates to ups */                                        \
  FIELD(float, eps)        /* of a scale */
PUMICE_PUSH_CONSTANTS(GemvPush, GEMV_PUSH)

#endif
