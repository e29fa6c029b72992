// Interface of gemv_subgroup.comp.
#ifndef PUMICE_SHADERS_GEMV_SUBGROUP_H
#define PUMICE_SHADERS_GEMV_SUBGROUP_H

#include "gemv/gemv_push.h"

#define GEMV_SUBGROUP_SPEC(CONSTANT)                                          \
  CONSTANT(0, uint, workgroup_size, 64) /* 32 lanes × slices of K */         \
  CONSTANT(1, uint, tile_rows, 1)       /* rows of x in registers */          \
  CONSTANT(2, uint, subgroup_size, 32)  /* required, and full: 8, 16 or 32 */ \
  CONSTANT(3, uint, finishes, 0)        /* else `finish` is 0 */
PUMICE_SPEC_CONSTANTS(GemvSubgroupSpec, GEMV_SUBGROUP_SPEC)

#endif
