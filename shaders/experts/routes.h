// What Route gives and the other two read.
#ifndef PUMICE_SHADERS_EXPERTS_ROUTES_H
#define PUMICE_SHADERS_EXPERTS_ROUTES_H

#include "common/interface.h"

#define EXPERT_ROUTE(FIELD) \
  FIELD(uint, expert)       \
  FIELD(float, weight)
PUMICE_STRUCT(ExpertRoute, EXPERT_ROUTE)

#define MOST_EXPERTS 512  // of a layer
#define MOST_USED 16      // of a token
#define MOST_GROUPS 64    // of experts

#ifndef __cplusplus
layout(buffer_reference, std430, buffer_reference_align = 8) buffer ExpertRoutes {
  ExpertRoute v[];
};
#endif

#endif
