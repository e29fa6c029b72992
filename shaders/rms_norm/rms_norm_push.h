// Push constants of rms_norm.comp and rms_norm_wide.comp.
#ifndef PUMICE_SHADERS_RMS_NORM_PUSH_H
#define PUMICE_SHADERS_RMS_NORM_PUSH_H

#include "common/interface.h"

#define RMS_NORM_PUSH(FIELD)                                                         \
  FIELD(ADDRESS, x)         /* float [*][x_stride]: the residual stream, or heads */ \
  FIELD(ADDRESS, residual)  /* like x: added to it first, if add_residual */         \
  FIELD(ADDRESS, weight)    /* float [n], or [group][n], if weighted */              \
  FIELD(ADDRESS, y)         /* float [rows][y_stride] */                             \
  FIELD(ADDRESS, row_index) /* uint [rows]: row of x for row of y, if gather */      \
  FIELD(ADDRESS, planes)    /* y once more as PlanesOfX, if to_planes; wide only */  \
  FIELD(uint, n)            /* of a group */                                         \
  FIELD(uint, x_stride)                                                              \
  FIELD(uint, y_stride)                                                              \
  FIELD(uint, add_residual)                                                          \
  FIELD(uint, gather)                                                                \
  FIELD(uint, weighted)                                                              \
  FIELD(uint, to_planes) /* n is a multiple of 32, and there is one group */         \
  FIELD(float, eps)                                                                  \
  FIELD(uint, weight_stride) /* from a group's weights to the next one's; 0: the same */
PUMICE_PUSH_CONSTANTS(RmsNormPush, RMS_NORM_PUSH)

#endif
