// Interface of attention_reduce.comp.
#ifndef PUMICE_SHADERS_ATTENTION_REDUCE_H
#define PUMICE_SHADERS_ATTENTION_REDUCE_H

#include "common/interface.h"

#define ATTENTION_REDUCE_PUSH(FIELD)                                           \
  FIELD(ADDRESS, items)         /* AttentionReduceItem [gl_NumWorkGroups.x] */ \
  FIELD(ADDRESS, partial_stats) /* vec2 [slot][n_heads]: (maximum, sum) */     \
  FIELD(ADDRESS, partial_y)     /* float [slot][n_heads * head_dim] */         \
  FIELD(ADDRESS, y)             /* float [row][n_heads * head_dim] */          \
  FIELD(ADDRESS, sinks)         /* float [n_heads], if has_sinks */            \
  FIELD(uint, n_heads)
PUMICE_PUSH_CONSTANTS(AttentionReducePush, ATTENTION_REDUCE_PUSH)

#define ATTENTION_REDUCE_SPEC(CONSTANT) \
  CONSTANT(0, uint, workgroup_size, 64) \
  CONSTANT(1, uint, head_dim, 64)       \
  CONSTANT(2, uint, has_sinks, 0)       \
  CONSTANT(3, uint, flight, 4) /* partials that a lane loads at once */
PUMICE_SPEC_CONSTANTS(AttentionReduceSpec, ATTENTION_REDUCE_SPEC)

#endif
