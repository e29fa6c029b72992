// Interface of route.comp.
#ifndef PUMICE_SHADERS_EXPERTS_ROUTE_H
#define PUMICE_SHADERS_EXPERTS_ROUTE_H

#include "common/interface.h"

#define ROUTE_PUSH(FIELD)                                 \
  FIELD(ADDRESS, scores) /* float [rows][n_experts] */    \
  FIELD(ADDRESS, routes) /* ExpertRoute [rows][n_used] */ \
  FIELD(uint, n_experts) /* at most MOST_EXPERTS */       \
  FIELD(uint, n_used)    /* at most MOST_USED, n_experts */
PUMICE_PUSH_CONSTANTS(RoutePush, ROUTE_PUSH)

#define ROUTE_SPEC(CONSTANT) CONSTANT(0, uint, workgroup_size, 64)
PUMICE_SPEC_CONSTANTS(RouteSpec, ROUTE_SPEC)

#endif
