// Interface of head_linear_transposed.comp.
#ifndef PUMICE_SHADERS_HEAD_LINEAR_TRANSPOSED_H
#define PUMICE_SHADERS_HEAD_LINEAR_TRANSPOSED_H

#include "head_linear/head_linear_push.h"

#define HEAD_LINEAR_TRANSPOSED_SPEC(CONSTANT) CONSTANT(0, uint, workgroup_size, 32)
PUMICE_SPEC_CONSTANTS(HeadLinearTransposedSpec, HEAD_LINEAR_TRANSPOSED_SPEC)

#endif
