// What gemm's kernels are given when compiled with EXPERT_PAIRS; their constants are gemm's.
#ifndef PUMICE_SHADERS_EXPERT_GEMM_H
#define PUMICE_SHADERS_EXPERT_GEMM_H

#include "common/interface.h"

#define EXPERT_GEMM_PUSH(FIELD)                                                        \
  FIELD(ADDRESS, weights) /* part of the experts' rows, resident layout */             \
  FIELD(ADDRESS, x)       /* in the variant's form: a rank's row at strides of both */ \
  FIELD(ADDRESS, y)       /* float [tokens][n_used][y_stride] */                       \
  FIELD(ADDRESS, grid)    /* of the weights' type */                                   \
  FIELD(ADDRESS, tiles)   /* ExpertTile */                                             \
  FIELD(ADDRESS, pairs)   /* uint, see expert_groups.h */                              \
  FIELD(ADDRESS, bias)    /* float [n_experts][n], if has_bias */                      \
  FIELD(uint, n)          /* rows of an expert */                                      \
  FIELD(uint, k)          /* columns, a multiple of 4 */                               \
  FIELD(uint, n_col_tiles)                                                             \
  FIELD(uint, n_used)                                                                  \
  FIELD(uint, x_stride)      /* numbers from token to token, a multiple of 4 */        \
  FIELD(uint, x_rank_stride) /* from rank to rank, likewise; 0: one row for all */     \
  FIELD(uint, y_stride)                                                                \
  FIELD(uint, first_row) /* of the part, among all experts' */                         \
  FIELD(uint, part_rows)                                                               \
  FIELD(uint, first_tile)     /* that the grid's first workgroups take */              \
  FIELD(uint, first_col_tile) /* of an expert's rows, likewise */                      \
  FIELD(uint, has_bias)
#if defined(__cplusplus) || defined(EXPERT_PAIRS)
PUMICE_PUSH_CONSTANTS(ExpertGemmPush, EXPERT_GEMM_PUSH)
#endif

#endif
