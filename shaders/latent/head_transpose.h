// Interface of head_transpose.comp.
#ifndef PUMICE_SHADERS_HEAD_TRANSPOSE_H
#define PUMICE_SHADERS_HEAD_TRANSPOSE_H

#include "common/interface.h"

#define HEAD_TRANSPOSE_PUSH(FIELD)                                                      \
  FIELD(ADDRESS, weights) /* part of all heads' rows, resident layout */                \
  FIELD(ADDRESS, y)       /* F32 in the resident layout, the first head that is made */ \
  FIELD(ADDRESS, grid)    /* of the weights' type */                                    \
  FIELD(uint, n_rows)     /* of a head's matrix */                                      \
  FIELD(uint, n_cols)                                                                   \
  FIELD(uint, n_col_tiles)  /* of the weights */                                        \
  FIELD(uint, first_head)   /* that is made */                                          \
  FIELD(uint, first_y_head) /* of them, of this dispatch */                             \
  FIELD(uint, first_row)    /* of the part, among all heads' */                         \
  FIELD(uint, part_rows)                                                                \
  FIELD(uint, writes_ends) /* columns behind the last row are this dispatch's */
PUMICE_PUSH_CONSTANTS(HeadTransposePush, HEAD_TRANSPOSE_PUSH)

#define HEAD_TRANSPOSE_SPEC(CONSTANT) CONSTANT(0, uint, workgroup_size, 32) /* a tile's columns */
PUMICE_SPEC_CONSTANTS(HeadTransposeSpec, HEAD_TRANSPOSE_SPEC)

#endif
