// Interface of attention_softmax.comp.
#ifndef PUMICE_SHADERS_ATTENTION_SOFTMAX_H
#define PUMICE_SHADERS_ATTENTION_SOFTMAX_H

#include "common/interface.h"

#define ATTENTION_SOFTMAX_PUSH(FIELD)                                      \
  FIELD(ADDRESS, scores) /* float [n_heads][n_rows][n_keys], to weights */ \
  FIELD(uint, n_rows)                                                      \
  FIELD(uint, n_keys)
PUMICE_PUSH_CONSTANTS(AttentionSoftmaxPush, ATTENTION_SOFTMAX_PUSH)

#define ATTENTION_SOFTMAX_SPEC(CONSTANT) CONSTANT(0, uint, workgroup_size, 64)
PUMICE_SPEC_CONSTANTS(AttentionSoftmaxSpec, ATTENTION_SOFTMAX_SPEC)

#endif
