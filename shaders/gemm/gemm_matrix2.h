// Interface of gemm_matrix2.comp.
#ifndef PUMICE_SHADERS_GEMM_MATRIX2_H
#define PUMICE_SHADERS_GEMM_MATRIX2_H

#include "gemm/gemm_push.h"

#define GEMM_MATRIX2_SPEC(CONSTANT)      \
  CONSTANT(0, uint, workgroup_size, 256) \
  CONSTANT(1, uint, tile_rows, 128)      \
  CONSTANT(2, uint, tile_cols, 128)      \
  CONSTANT(3, uint, tile_k, 32)
PUMICE_SPEC_CONSTANTS(GemmMatrix2Spec, GEMM_MATRIX2_SPEC)

#endif
