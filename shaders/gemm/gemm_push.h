// What every kernel of gemm is given.
#ifndef PUMICE_SHADERS_GEMM_PUSH_H
#define PUMICE_SHADERS_GEMM_PUSH_H

#include "common/interface.h"

#define GEMM_PUSH(FIELD)                                                                \
  FIELD(ADDRESS, weights) /* resident tiles of n weight rows */                         \
  FIELD(ADDRESS, x)       /* [rows][x_stride] in the variant's form, 16-byte aligned */ \
  FIELD(ADDRESS, y)       /* float [rows][y_stride], n columns are written */           \
  FIELD(ADDRESS, grid)    /* of the weights' type */                                    \
  FIELD(uint, rows)                                                                     \
  FIELD(uint, n)                                                                        \
  FIELD(uint, k)        /* a multiple of 4 */                                           \
  FIELD(uint, x_stride) /* in numbers, a multiple of 4 */                               \
  FIELD(uint, y_stride)                                                                 \
  FIELD(uint, n_col_tiles)                                                              \
  FIELD(uint, first_row)                            /* of this dispatch, whole tiles before it */
#if defined(__cplusplus) || !defined(EXPERT_PAIRS)  // which has push constants of its own
PUMICE_PUSH_CONSTANTS(GemmPush, GEMM_PUSH)
#endif

#endif
