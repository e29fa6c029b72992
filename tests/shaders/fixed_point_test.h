// Interface of fixed_point_test.comp.
#ifndef PUMICE_TESTS_SHADERS_FIXED_POINT_TEST_H
#define PUMICE_TESTS_SHADERS_FIXED_POINT_TEST_H

#include "common/interface.h"

#define FIXED_POINT_TEST_PUSH(FIELD)                               \
  FIELD(ADDRESS, words) /* uint [n] */                             \
  FIELD(ADDRESS, found) /* uint [n][9]: what the functions give */ \
  FIELD(uint, n)
PUMICE_PUSH_CONSTANTS(FixedPointTestPush, FIXED_POINT_TEST_PUSH)

#define FIXED_POINT_TEST_SPEC(CONSTANT) CONSTANT(0, uint, workgroup_size, 64)
PUMICE_SPEC_CONSTANTS(FixedPointTestSpec, FIXED_POINT_TEST_SPEC)

#endif
