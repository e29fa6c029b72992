// Interface of gemv.comp.
#ifndef PUMICE_SHADERS_GEMV_H
#define PUMICE_SHADERS_GEMV_H

#include "gemv/gemv_push.h"

#define GEMV_SPEC(CONSTANT)                                                                        \
  CONSTANT(0, uint, workgroup_size, 64) /* 32 lanes × slices of K */                              \
  CONSTANT(1, uint, tile_rows, 1)       /* rows of x in registers */                               \
  CONSTANT(2, uint, lane_cols, 1)       /* weight rows a lane owns */                              \
  CONSTANT(3, uint, unroll, 1)          /* blocks in flight, not more than a tile's */             \
  CONSTANT(4, uint, slice_blocks, 1)    /* of what slices are whole numbers; so is it of unroll */ \
  CONSTANT(5, uint, finishes, 0)        /* else `finish` is 0 */
PUMICE_SPEC_CONSTANTS(GemvSpec, GEMV_SPEC)

#endif
