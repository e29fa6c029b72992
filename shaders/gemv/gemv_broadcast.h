// Interface of gemv_broadcast.comp, besides the constants of common/x_broadcast.h.
#ifndef PUMICE_SHADERS_GEMV_BROADCAST_H
#define PUMICE_SHADERS_GEMV_BROADCAST_H

#include "gemv/gemv_push.h"

#define GEMV_BROADCAST_SPEC(CONSTANT)                                                \
  CONSTANT(0, uint, workgroup_size, 32) /* a multiple of subgroup_size */            \
  CONSTANT(1, uint, tile_rows, 1)       /* rows of x in registers */                 \
  CONSTANT(2, uint, lane_cols, 1)       /* weight rows a lane owns */                \
  CONSTANT(3, uint, uniform_loads, 0)   /* 1: from addresses that all lanes share */ \
  CONSTANT(4, uint, finishes, 0) /* else `finish` is 0; a subgroup has whole groups of 32 columns */
PUMICE_SPEC_CONSTANTS(GemvBroadcastSpec, GEMV_BROADCAST_SPEC)

#endif
