// Interface of combine.comp.
#ifndef PUMICE_SHADERS_EXPERTS_COMBINE_H
#define PUMICE_SHADERS_EXPERTS_COMBINE_H

#include "common/interface.h"

#define COMBINE_PUSH(FIELD)                               \
  FIELD(ADDRESS, x)      /* float [rows][n_used][n] */    \
  FIELD(ADDRESS, routes) /* ExpertRoute [rows][n_used] */ \
  FIELD(ADDRESS, y)      /* float [rows][n] */            \
  FIELD(uint, n)                                          \
  FIELD(uint, n_used)
PUMICE_PUSH_CONSTANTS(CombinePush, COMBINE_PUSH)

#define COMBINE_SPEC(CONSTANT) CONSTANT(0, uint, workgroup_size, 64)
PUMICE_SPEC_CONSTANTS(CombineSpec, COMBINE_SPEC)

#endif
