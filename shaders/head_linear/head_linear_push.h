// Push constants of the head_linear kernels.
#ifndef PUMICE_SHADERS_HEAD_LINEAR_PUSH_H
#define PUMICE_SHADERS_HEAD_LINEAR_PUSH_H

#include "common/interface.h"

#define HEAD_LINEAR_PUSH(FIELD)                                                            \
  FIELD(ADDRESS, weights) /* part of all heads' rows, resident layout */                   \
  FIELD(ADDRESS, x)       /* float [rows][x_stride], heads x_head_stride apart */          \
  FIELD(ADDRESS, y)       /* float [rows][y_stride], heads of their products and tails */  \
  FIELD(ADDRESS, grid)    /* of the weights' type */                                       \
  FIELD(uint, rows)                                                                        \
  FIELD(uint, n) /* rows of a head's matrix */                                             \
  FIELD(uint, k) /* columns, a multiple of 4 */                                            \
  FIELD(uint, n_col_tiles)                                                                 \
  FIELD(uint, head_rows)     /* rows of a head in the weights */                           \
  FIELD(uint, first_of_head) /* of them the matrix's first */                              \
  FIELD(uint, n_kept)        /* numbers of a head of x behind those that are multiplied */ \
  FIELD(uint, x_stride)      /* floats, a multiple of 4 */                                 \
  FIELD(uint, x_head_stride) /* likewise */                                                \
  FIELD(uint, y_stride)                                                                    \
  FIELD(uint, first_row) /* of the part, among all heads' */                               \
  FIELD(uint, part_rows)
PUMICE_PUSH_CONSTANTS(HeadLinearPush, HEAD_LINEAR_PUSH)

#endif
