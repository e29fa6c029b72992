// Interface of gemm_i8.comp. Its x is QuantizedX of `rows` rows and k columns, a multiple of 32.
#ifndef PUMICE_SHADERS_GEMM_I8_H
#define PUMICE_SHADERS_GEMM_I8_H

#include "gemm/gemm_push.h"

#define GEMM_I8_SPEC(CONSTANT)                     \
  CONSTANT(0, uint, workgroup_size, 64)            \
  CONSTANT(1, uint, tile_rows, 16) /* rows of x */ \
  CONSTANT(2, uint, lane_cols, 1)  /* weight rows a lane owns */
PUMICE_SPEC_CONSTANTS(GemmI8Spec, GEMM_I8_SPEC)

#endif
