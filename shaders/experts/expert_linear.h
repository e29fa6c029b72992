// Interface of expert_linear.comp.
#ifndef PUMICE_SHADERS_EXPERTS_EXPERT_LINEAR_H
#define PUMICE_SHADERS_EXPERTS_EXPERT_LINEAR_H

#include "common/interface.h"

#define EXPERT_LINEAR_PUSH(FIELD)                                                         \
  FIELD(ADDRESS, weights) /* part of the experts' rows, resident layout */                \
  FIELD(ADDRESS, x)       /* float: row of a token's rank at strides of both */           \
  FIELD(ADDRESS, routes)  /* ExpertRoute [rows][n_used] */                                \
  FIELD(ADDRESS, y)       /* float [rows][n_used][y_stride] */                            \
  FIELD(ADDRESS, grid)    /* of the weights' type */                                      \
  FIELD(ADDRESS, bias)    /* float [n_experts][n], if has_bias */                         \
  FIELD(uint, n)          /* rows of an expert */                                         \
  FIELD(uint, k)          /* columns, a multiple of 4 */                                  \
  FIELD(uint, n_col_tiles)                                                                \
  FIELD(uint, n_experts)                                                                  \
  FIELD(uint, x_stride)      /* floats from token to token, a multiple of 4 */            \
  FIELD(uint, x_rank_stride) /* floats from rank to rank, likewise; 0: one row for all */ \
  FIELD(uint, y_stride)                                                                   \
  FIELD(uint, first_row) /* of the part, among all experts' */                            \
  FIELD(uint, part_rows)                                                                  \
  FIELD(uint, first_output) /* of an expert's rows, the dispatch's first */
PUMICE_PUSH_CONSTANTS(ExpertLinearPush, EXPERT_LINEAR_PUSH)

#define EXPERT_LINEAR_SPEC(CONSTANT)                            \
  CONSTANT(0, uint, workgroup_size, 128) /* a multiple of 32 */ \
  CONSTANT(1, uint, has_bias, 0)
PUMICE_SPEC_CONSTANTS(ExpertLinearSpec, EXPERT_LINEAR_SPEC)

#endif
