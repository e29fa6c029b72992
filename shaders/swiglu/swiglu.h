// Interface of swiglu.comp.
#ifndef PUMICE_SHADERS_SWIGLU_H
#define PUMICE_SHADERS_SWIGLU_H

#include "common/interface.h"

#define SWIGLU_PUSH(FIELD)                                      \
  FIELD(ADDRESS, gate_up) /* float [rows][2n]: gate, then up */ \
  FIELD(ADDRESS, y)       /* float [rows][n] */                 \
  FIELD(uint, n)
PUMICE_PUSH_CONSTANTS(SwigluPush, SWIGLU_PUSH)

#define SWIGLU_SPEC(CONSTANT) CONSTANT(0, uint, workgroup_size, 64)
PUMICE_SPEC_CONSTANTS(SwigluSpec, SWIGLU_SPEC)

#endif
