// Interface of peak_arithmetic.comp.
#ifndef PUMICE_SHADERS_PEAK_ARITHMETIC_H
#define PUMICE_SHADERS_PEAK_ARITHMETIC_H

#include "common/interface.h"

#define PEAK_ARITHMETIC_PUSH(FIELD)                                           \
  FIELD(ADDRESS, factors) /* two words: a and b */                            \
  FIELD(ADDRESS, y)       /* one word an invocation: the sum of its chains */ \
  FIELD(uint, n_iterations)
PUMICE_PUSH_CONSTANTS(PeakArithmeticPush, PEAK_ARITHMETIC_PUSH)

#define PEAK_ARITHMETIC_SPEC(CONSTANT) CONSTANT(0, uint, workgroup_size, 128)
PUMICE_SPEC_CONSTANTS(PeakArithmeticSpec, PEAK_ARITHMETIC_SPEC)

#endif
