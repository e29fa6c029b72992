// Interface of gemv_reduce.comp.
#ifndef PUMICE_SHADERS_GEMV_REDUCE_H
#define PUMICE_SHADERS_GEMV_REDUCE_H

#include "common/interface.h"
#include "gemv/gemv_finish.h"

#define GEMV_REDUCE_PUSH(FIELD)                                             \
  FIELD(ADDRESS, partials) /* float [splits][rows][n] */                    \
  FIELD(ADDRESS, y)        /* float [rows][y_stride] */                     \
  FIELD(ADDRESS, squares)  /* as GemvPush's, and the next ones, if added */ \
  FIELD(ADDRESS, norm)                                                      \
  FIELD(ADDRESS, normed)                                                    \
  FIELD(uint, rows)                                                         \
  FIELD(uint, n)                                                            \
  FIELD(uint, y_stride)                                                     \
  FIELD(uint, splits) /* at least 1, at most max_splits */                  \
  FIELD(uint, finish) /* GEMV_ADDED or 0 */
PUMICE_PUSH_CONSTANTS(GemvReducePush, GEMV_REDUCE_PUSH)

#define GEMV_REDUCE_SPEC(CONSTANT)                                       \
  CONSTANT(0, uint, workgroup_size, 64) /* a multiple of GEMV_SQUARES */ \
  CONSTANT(1, uint, max_splits, 8)
PUMICE_SPEC_CONSTANTS(GemvReduceSpec, GEMV_REDUCE_SPEC)

#endif
