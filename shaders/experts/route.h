// Interface of route.comp.
#ifndef PUMICE_SHADERS_EXPERTS_ROUTE_H
#define PUMICE_SHADERS_EXPERTS_ROUTE_H

#include "common/interface.h"

// How scores become probabilities.
#define ROUTE_SOFTMAX 0
#define ROUTE_SIGMOID 1

// What chooses.
#define ROUTE_BY_SCORE 0
#define ROUTE_BY_BIASED_SCORE 1
#define ROUTE_GIVEN 2  // nothing here: routes name the experts, and only weights are computed

#define ROUTE_PUSH(FIELD)                                                  \
  FIELD(ADDRESS, scores) /* float [rows][n_experts] */                     \
  FIELD(ADDRESS, bias)   /* float [n_experts], of ROUTE_BY_BIASED_SCORE */ \
  FIELD(ADDRESS, gains)  /* float [n_experts], if has_gains */             \
  FIELD(ADDRESS, routes) /* ExpertRoute [rows][n_used] */                  \
  FIELD(uint, n_experts) /* at most MOST_EXPERTS */                        \
  FIELD(uint, n_used)    /* at most MOST_USED, n_experts */                \
  FIELD(uint, n_groups)  /* at most MOST_GROUPS, of the same size each */  \
  FIELD(uint, n_used_groups)                                               \
  FIELD(float, scale) /* of the weights */
PUMICE_PUSH_CONSTANTS(RoutePush, ROUTE_PUSH)

#define ROUTE_SPEC(CONSTANT)                                                          \
  CONSTANT(0, uint, workgroup_size, 64)                                               \
  CONSTANT(1, uint, probability, ROUTE_SOFTMAX)                                       \
  CONSTANT(2, uint, choice, ROUTE_BY_SCORE)                                           \
  CONSTANT(3, uint, grouped, 0)      /* only experts of the best groups are chosen */ \
  CONSTANT(4, uint, renormalised, 1) /* weights of a row add up to the scale */       \
  CONSTANT(5, uint, has_gains, 0)    /* an expert's weight is times its gain */
PUMICE_SPEC_CONSTANTS(RouteSpec, ROUTE_SPEC)

#endif
