// Interface of latent_heads.comp.
#ifndef PUMICE_SHADERS_LATENT_HEADS_H
#define PUMICE_SHADERS_LATENT_HEADS_H

#include "common/interface.h"

#define LATENT_HEADS_PUSH(FIELD)                                                               \
  FIELD(ADDRESS, turned) /* float [n_keys][turned_stride]: the end of every head's key */      \
  FIELD(ADDRESS, keys)   /* float [n_keys][stride], the rest of them key_head_stride apart */  \
  FIELD(ADDRESS, values) /* float [n_keys][stride], heads value_head_stride apart */           \
  FIELD(ADDRESS, blocks) /* KV blocks of one layer one after the other, of the first key on */ \
  FIELD(uint, turned_stride)                                                                   \
  FIELD(uint, stride)                                                                          \
  FIELD(uint, key_head_stride)                                                                 \
  FIELD(uint, value_head_stride)                                                               \
  FIELD(uint, n_heads)                                                                         \
  FIELD(uint, block_bytes)                                                                     \
  FIELD(uint, first_key) /* of this dispatch */
PUMICE_PUSH_CONSTANTS(LatentHeadsPush, LATENT_HEADS_PUSH)

#define LATENT_HEADS_SPEC(CONSTANT)                          \
  CONSTANT(0, uint, workgroup_size, 64)                      \
  CONSTANT(1, uint, head_dim, 192)                           \
  CONSTANT(2, uint, n_turned, 64) /* the last of head_dim */ \
  CONSTANT(3, uint, v_dim, 128)                              \
  CONSTANT(4, uint, kv_type, 1) /* KV_F32 or KV_F16 */
PUMICE_SPEC_CONSTANTS(LatentHeadsSpec, LATENT_HEADS_SPEC)

#endif
