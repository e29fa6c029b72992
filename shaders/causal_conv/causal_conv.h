// Interface of causal_conv.comp.
#ifndef PUMICE_SHADERS_CAUSAL_CONV_H
#define PUMICE_SHADERS_CAUSAL_CONV_H

#include "common/interface.h"

#define CAUSAL_CONV_PUSH(FIELD)                                                    \
  FIELD(ADDRESS, x)        /* float [rows][x_stride] */                            \
  FIELD(ADDRESS, y)        /* float [rows][y_stride] */                            \
  FIELD(ADDRESS, weight)   /* float [n][taps] */                                   \
  FIELD(ADDRESS, bias)     /* float [n], if has_bias */                            \
  FIELD(ADDRESS, items)    /* StateItem [n_items] */                               \
  FIELD(ADDRESS, row_item) /* uint [rows] */                                       \
  FIELD(uint, x_stride)                                                            \
  FIELD(uint, y_stride)                                                            \
  FIELD(uint, n)                                                                   \
  FIELD(uint, state_offset) /* bytes from a page's start to float [taps - 1][n] */ \
  FIELD(uint, first_row)    /* of this dispatch */                                 \
  FIELD(uint, has_bias)
PUMICE_PUSH_CONSTANTS(CausalConvPush, CAUSAL_CONV_PUSH)

#define CAUSAL_CONV_SPEC(CONSTANT)      \
  CONSTANT(0, uint, workgroup_size, 64) \
  CONSTANT(1, uint, taps, 4)            \
  CONSTANT(2, uint, applies_silu, 0)
PUMICE_SPEC_CONSTANTS(CausalConvSpec, CAUSAL_CONV_SPEC)

#endif
