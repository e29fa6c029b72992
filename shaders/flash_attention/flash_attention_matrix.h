// Interface of flash_attention_matrix.comp: that of flash_attention.comp and these constants.
#ifndef PUMICE_SHADERS_FLASH_ATTENTION_MATRIX_H
#define PUMICE_SHADERS_FLASH_ATTENTION_MATRIX_H

#include "flash_attention/flash_attention.h"

// Products of the device's matrix_m × matrix_n × matrix_k. tile_rows is a multiple of matrix_m,
// key_tile of 16, matrix_n and matrix_k, workgroup_size of subgroup_size.
#define FLASH_ATTENTION_MATRIX_SPEC(CONSTANT)             \
  CONSTANT(8, uint, subgroup_size, 32)                    \
  CONSTANT(9, uint, key_tile, 32) /* keys of a KV tile */ \
  CONSTANT(10, uint, matrix_m, 16)                        \
  CONSTANT(11, uint, matrix_n, 16)                        \
  CONSTANT(12, uint, matrix_k, 16)                        \
  CONSTANT(13, uint, column_shares, 1) /* subgroups that share a column of scores; divides \
                                          tile_rows / matrix_m */
PUMICE_SPEC_CONSTANTS(FlashAttentionMatrixSpec, FLASH_ATTENTION_MATRIX_SPEC)

#endif
