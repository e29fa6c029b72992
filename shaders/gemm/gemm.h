// Interface of gemm.comp.
#ifndef PUMICE_SHADERS_GEMM_H
#define PUMICE_SHADERS_GEMM_H

#include "common/x_broadcast.h"
#include "gemm/gemm_push.h"

#define GEMM_SPEC(CONSTANT)                                                 \
  CONSTANT(0, uint, workgroup_size, 64)                                     \
  CONSTANT(1, uint, tile_rows, 16) /* rows of x in registers: 4 × (1..) */ \
  CONSTANT(2, uint, lane_cols, 1)  /* weight rows a lane owns */
#define GEMM_UNIFORM_SPEC(CONSTANT) \
  GEMM_SPEC(CONSTANT)               \
  CONSTANT(3, uint, subgroup_size, 8) /* 4, 8, 16 or 32 */
#ifdef X_UNIFORM
PUMICE_SPEC_CONSTANTS(GemmUniformSpec, GEMM_UNIFORM_SPEC)
#else
PUMICE_SPEC_CONSTANTS(GemmSpec, GEMM_SPEC)
#ifdef __cplusplus
PUMICE_SPEC_CONSTANTS(GemmUniformSpec, GEMM_UNIFORM_SPEC)
#endif
#endif

#endif
