// Push constants of rms_norm.comp and rms_norm_wide.comp.
#ifndef PUMICE_SHADERS_RMS_NORM_PUSH_H
#define PUMICE_SHADERS_RMS_NORM_PUSH_H

#include "common/interface.h"

#define RMS_NORM_PUSH(FIELD)                                                      \
  FIELD(ADDRESS, x)         /* float [*][n]: the residual stream */               \
  FIELD(ADDRESS, residual)  /* float [*][n]: added to x first, if add_residual */ \
  FIELD(ADDRESS, weight)    /* float [n] */                                       \
  FIELD(ADDRESS, y)         /* float [rows][n] */                                 \
  FIELD(ADDRESS, row_index) /* uint [rows]: row of x for row of y, if gather */   \
  FIELD(uint, n)                                                                  \
  FIELD(uint, add_residual)                                                       \
  FIELD(uint, gather)                                                             \
  FIELD(float, eps)
PUMICE_PUSH_CONSTANTS(RmsNormPush, RMS_NORM_PUSH)

#endif
