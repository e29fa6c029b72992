// Interface of peak_matrix.comp.
#ifndef PUMICE_SHADERS_PEAK_MATRIX_H
#define PUMICE_SHADERS_PEAK_MATRIX_H

#include "common/interface.h"

#define PEAK_MATRIX_PUSH(FIELD)                                                                \
  FIELD(ADDRESS, factors) /* a [2][m][k], then b [2][k][n], of the factors' type */            \
  FIELD(ADDRESS, y)       /* [workgroup][subgroup][m][n] of the sum's type: the chains' sum */ \
  FIELD(uint, n_iterations)
PUMICE_PUSH_CONSTANTS(PeakMatrixPush, PEAK_MATRIX_PUSH)

#define PEAK_MATRIX_SPEC(CONSTANT)                                             \
  CONSTANT(0, uint, workgroup_size, 128) /* a multiple of the subgroup size */ \
  CONSTANT(1, uint, matrix_m, 16)                                              \
  CONSTANT(2, uint, matrix_n, 16)                                              \
  CONSTANT(3, uint, matrix_k, 16)
PUMICE_SPEC_CONSTANTS(PeakMatrixSpec, PEAK_MATRIX_SPEC)

#endif
