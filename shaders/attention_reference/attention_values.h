// Interface of attention_values.comp.
#ifndef PUMICE_SHADERS_ATTENTION_VALUES_H
#define PUMICE_SHADERS_ATTENTION_VALUES_H

#include "common/interface.h"

#define ATTENTION_VALUES_PUSH(FIELD)                                             \
  FIELD(ADDRESS, weights)     /* float [n_heads][n_rows][n_keys] */              \
  FIELD(ADDRESS, positions)   /* uint [row], rising */                           \
  FIELD(ADDRESS, block_table) /* address [n_keys / 16] */                        \
  FIELD(ADDRESS, y)           /* float [row][n_heads * head_dim] */              \
  FIELD(uint, layer_offset)   /* bytes from a block's start to this layer's K */ \
  FIELD(uint, n_heads)                                                           \
  FIELD(uint, n_rows)                                                            \
  FIELD(uint, n_keys)
PUMICE_PUSH_CONSTANTS(AttentionValuesPush, ATTENTION_VALUES_PUSH)

#define ATTENTION_VALUES_SPEC(CONSTANT)                               \
  CONSTANT(0, uint, workgroup_size, 64) /* keys read at once */       \
  CONSTANT(1, uint, head_dim, 64)                                     \
  CONSTANT(2, uint, tile_rows, 8)                                     \
  CONSTANT(3, uint, group, 1)  /* query heads that share a kv head */ \
  CONSTANT(4, uint, k_type, 1) /* common/kv_types.h */                \
  CONSTANT(5, uint, v_type, 1)
PUMICE_SPEC_CONSTANTS(AttentionValuesSpec, ATTENTION_VALUES_SPEC)

#endif
