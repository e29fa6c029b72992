// Interface of head_linear.comp.
#ifndef PUMICE_SHADERS_HEAD_LINEAR_H
#define PUMICE_SHADERS_HEAD_LINEAR_H

#include "head_linear/head_linear_push.h"

#define HEAD_LINEAR_SPEC(CONSTANT)                              \
  CONSTANT(0, uint, workgroup_size, 128) /* a multiple of 32 */ \
  CONSTANT(1, uint, tile_rows, 1)        /* rows for which a weight is read once */
PUMICE_SPEC_CONSTANTS(HeadLinearSpec, HEAD_LINEAR_SPEC)

#endif
