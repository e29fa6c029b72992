// Constants of the modules compiled with X_BROADCAST, next to their own.
#ifndef PUMICE_SHADERS_X_BROADCAST_H
#define PUMICE_SHADERS_X_BROADCAST_H

#include "common/interface.h"

#define X_BROADCAST_SPEC(CONSTANT)                          \
  CONSTANT(16, uint, subgroup_size, 8) /* 4, 8, 16 or 32 */ \
  CONSTANT(17, uint, wide_loads, 0)    /* 1: 64 bits at a time */

#if defined(__cplusplus) || defined(X_BROADCAST)
PUMICE_SPEC_CONSTANTS(XBroadcastSpec, X_BROADCAST_SPEC)
#endif

#endif
