// Interface of flash_attention_matrix_rows.comp: that of flash_attention.comp and these constants.
#ifndef PUMICE_SHADERS_FLASH_ATTENTION_MATRIX_ROWS_H
#define PUMICE_SHADERS_FLASH_ATTENTION_MATRIX_ROWS_H

#include "flash_attention/flash_attention.h"

// Products of the device's matrix_m × matrix_n × matrix_k, powers of two. Each subgroup has as many rows of the
// tile, a multiple of matrix_m and at most one for each lane. key_tile is a multiple of 16, matrix_n and matrix_k, and
// subgroup_size of key_tile / 4.
#define FLASH_ATTENTION_MATRIX_ROWS_SPEC(CONSTANT)        \
  CONSTANT(8, uint, subgroup_size, 32)                    \
  CONSTANT(9, uint, key_tile, 32) /* keys of a KV tile */ \
  CONSTANT(10, uint, matrix_m, 16)                        \
  CONSTANT(11, uint, matrix_n, 16)                        \
  CONSTANT(12, uint, matrix_k, 16)
PUMICE_SPEC_CONSTANTS(FlashAttentionMatrixRowsSpec, FLASH_ATTENTION_MATRIX_ROWS_SPEC)

#endif
