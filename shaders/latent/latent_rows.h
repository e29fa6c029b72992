// Interface of latent_rows.comp.
#ifndef PUMICE_SHADERS_LATENT_ROWS_H
#define PUMICE_SHADERS_LATENT_ROWS_H

#include "common/interface.h"

#define LATENT_ROWS_PUSH(FIELD)                                                  \
  FIELD(ADDRESS, block_table) /* address [n_keys / 16], of the first key */      \
  FIELD(ADDRESS, y)           /* float [n_keys][head_dim] */                     \
  FIELD(uint, layer_offset)   /* bytes from a block's start to this layer's K */ \
  FIELD(uint, n_keys)
PUMICE_PUSH_CONSTANTS(LatentRowsPush, LATENT_ROWS_PUSH)

#define LATENT_ROWS_SPEC(CONSTANT)                             \
  CONSTANT(0, uint, workgroup_size, 64) /* a multiple of 16 */ \
  CONSTANT(1, uint, head_dim, 576)                             \
  CONSTANT(2, uint, k_type, 1) /* common/kv_types.h */
PUMICE_SPEC_CONSTANTS(LatentRowsSpec, LATENT_ROWS_SPEC)

#endif
