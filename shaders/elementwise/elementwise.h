// Interface of elementwise.comp.
#ifndef PUMICE_SHADERS_ELEMENTWISE_H
#define PUMICE_SHADERS_ELEMENTWISE_H

#include "common/activation.h"
#include "common/interface.h"

// The kinds below these are activations (common/activation.h).
#define ELEMENTWISE_ADD 5
#define ELEMENTWISE_MUL 6
#define ELEMENTWISE_MUL_GROUPS 7
#define ELEMENTWISE_SCALE 8
#define ELEMENTWISE_SOFT_CAP 9
#define ELEMENTWISE_AT_MOST 10
#define ELEMENTWISE_WITHIN 11
#define ELEMENTWISE_COPY 12
#define ELEMENTWISE_XIELU 13
#define ELEMENTWISE_COPY_GROUPS 14

#define ELEMENTWISE_PUSH(FIELD)                                                                \
  FIELD(ADDRESS, a)         /* float [*][a_stride] */                                          \
  FIELD(ADDRESS, b)         /* float [*][b_stride], if the kind has two */                     \
  FIELD(ADDRESS, y)         /* float [rows][y_stride] */                                       \
  FIELD(ADDRESS, row_index) /* uint [rows]: row of a and b for row of y, if gather */          \
  FIELD(uint, a_stride)                                                                        \
  FIELD(uint, b_stride) /* 0: one row for all */                                               \
  FIELD(uint, y_stride)                                                                        \
  FIELD(uint, n)                                                                               \
  FIELD(float, factor)                                                                         \
  FIELD(uint, gather)                                                                          \
  FIELD(float, alpha_p)                                                                        \
  FIELD(float, alpha_n)                                                                        \
  FIELD(float, eps)                                                                            \
  FIELD(uint, group)   /* of ELEMENTWISE_MUL_GROUPS: numbers of a to one of b;               \
                          of ELEMENTWISE_COPY_GROUPS: numbers of y from one of a's groups */ \
  FIELD(uint, a_group) /* of ELEMENTWISE_COPY_GROUPS: from one of a's groups to the next */    \
  FIELD(uint, quads)   /* n, the strides and group are multiples of 4, arrays aligned to 16 bytes */
PUMICE_PUSH_CONSTANTS(ElementwisePush, ELEMENTWISE_PUSH)

#define ELEMENTWISE_SPEC(CONSTANT)      \
  CONSTANT(0, uint, workgroup_size, 64) \
  CONSTANT(1, uint, kind, ELEMENTWISE_COPY)
PUMICE_SPEC_CONSTANTS(ElementwiseSpec, ELEMENTWISE_SPEC)

#endif
