// What a kernel of a recurrence is told of one sequence of a step: the same in GLSL and in C++.
#ifndef PUMICE_SHADERS_COMMON_STATE_ITEM_H
#define PUMICE_SHADERS_COMMON_STATE_ITEM_H

#include "common/interface.h"

#ifdef __cplusplus
namespace pumice::ops {
#endif

#define STATE_ITEM(FIELD)                                                           \
  FIELD(ADDRESS, before) /* page with the state behind the rows before the first */ \
  FIELD(ADDRESS, after)  /* another page, for the state behind the last row */      \
  FIELD(uint, first_row)                                                            \
  FIELD(uint, n_rows)                                                               \
  FIELD(uint, begins) /* the state before is zero: nothing in `before` counts */    \
  FIELD(uint, unused)
PUMICE_STRUCT(StateItem, STATE_ITEM)

#ifdef __cplusplus
}  // namespace pumice::ops
#else
layout(buffer_reference, std430, buffer_reference_align = 8) buffer StateItems { StateItem v[]; };
#endif

#endif
