// Interface of group_routes.comp.
#ifndef PUMICE_SHADERS_GROUP_ROUTES_H
#define PUMICE_SHADERS_GROUP_ROUTES_H

#include "common/interface.h"

#define GROUP_ROUTES_PUSH(FIELD)                                            \
  FIELD(ADDRESS, routes) /* ExpertRoute [n_pairs] */                        \
  FIELD(ADDRESS, tiles)  /* ExpertTile [n_pairs / tile_rows + n_experts] */ \
  FIELD(ADDRESS, pairs)  /* uint [n_pairs] */                               \
  FIELD(uint, n_pairs)                                                      \
  FIELD(uint, n_used)                                                       \
  FIELD(uint, n_experts)                                                    \
  FIELD(uint, tile_rows)                                                    \
  FIELD(uint, first_expert) /* that the first workgroup takes */
PUMICE_PUSH_CONSTANTS(GroupRoutesPush, GROUP_ROUTES_PUSH)

#define GROUP_ROUTES_SPEC(CONSTANT) CONSTANT(0, uint, workgroup_size, 64)
PUMICE_SPEC_CONSTANTS(GroupRoutesSpec, GROUP_ROUTES_SPEC)

#endif
