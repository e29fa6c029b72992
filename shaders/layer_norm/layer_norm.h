// Interface of layer_norm.comp.
#ifndef PUMICE_SHADERS_LAYER_NORM_H
#define PUMICE_SHADERS_LAYER_NORM_H

#include "common/interface.h"

#define LAYER_NORM_PUSH(FIELD)                                                  \
  FIELD(ADDRESS, x)         /* float [*][x_stride]: the residual stream */      \
  FIELD(ADDRESS, residual)  /* like x: added to it first, if add_residual */    \
  FIELD(ADDRESS, weight)    /* float [groups][n] */                             \
  FIELD(ADDRESS, bias)      /* float [groups][n], if add_bias */                \
  FIELD(ADDRESS, y)         /* float [rows][y_stride] */                        \
  FIELD(ADDRESS, row_index) /* uint [rows]: row of x for row of y, if gather */ \
  FIELD(uint, n)            /* of each group */                                 \
  FIELD(uint, x_stride)                                                         \
  FIELD(uint, y_stride)                                                         \
  FIELD(uint, add_residual)                                                     \
  FIELD(uint, add_bias)                                                         \
  FIELD(uint, gather)                                                           \
  FIELD(float, eps)
PUMICE_PUSH_CONSTANTS(LayerNormPush, LAYER_NORM_PUSH)

#define LAYER_NORM_SPEC(CONSTANT) CONSTANT(0, uint, workgroup_size, 64) /* a power of two */
PUMICE_SPEC_CONSTANTS(LayerNormSpec, LAYER_NORM_SPEC)

#endif
