// Interface of rope.comp.
#ifndef PUMICE_SHADERS_ROPE_H
#define PUMICE_SHADERS_ROPE_H

#include "common/interface.h"

#define ROPE_PUSH(FIELD)                                                      \
  FIELD(ADDRESS, x)          /* float [rows][x_stride], rotated in place */   \
  FIELD(ADDRESS, rope_table) /* vec2 [position][rope_dims / 2]: (cos, sin) */ \
  FIELD(ADDRESS, positions)  /* uint [rows] */                                \
  FIELD(uint, n_heads)                                                        \
  FIELD(uint, x_stride)
PUMICE_PUSH_CONSTANTS(RopePush, ROPE_PUSH)

#define ROPE_SPEC(CONSTANT)             \
  CONSTANT(0, uint, workgroup_size, 64) \
  CONSTANT(1, uint, head_dim, 64)       \
  CONSTANT(2, uint, rope_dims, 64)      \
  CONSTANT(3, uint, halves, 0) /* rotate (i, i + rope_dims / 2), not (2i, 2i + 1) */
PUMICE_SPEC_CONSTANTS(RopeSpec, ROPE_SPEC)

#endif
