// Interface of weights_test.comp.
#ifndef PUMICE_TESTS_FORMAT_WEIGHTS_TEST_H
#define PUMICE_TESTS_FORMAT_WEIGHTS_TEST_H

#include "common/interface.h"

#define WEIGHTS_TEST_PUSH(FIELD)                                                  \
  FIELD(ADDRESS, weights)     /* resident layout */                               \
  FIELD(ADDRESS, out_weights) /* float [rows, a multiple of 32][32 * n_blocks] */ \
  FIELD(ADDRESS, grid)        /* of the type */                                   \
  FIELD(uint, n_col_tiles)                                                        \
  FIELD(uint, n_blocks)
PUMICE_PUSH_CONSTANTS(WeightsTestPush, WEIGHTS_TEST_PUSH)

#define WEIGHTS_TEST_SPEC(CONSTANT)     \
  CONSTANT(0, uint, workgroup_size, 32) \
  CONSTANT(1, uint, by_tile, 0)
PUMICE_SPEC_CONSTANTS(WeightsTestSpec, WEIGHTS_TEST_SPEC)

#endif
