// Interface of flash_attention.comp.
#ifndef PUMICE_SHADERS_FLASH_ATTENTION_H
#define PUMICE_SHADERS_FLASH_ATTENTION_H

#include "common/interface.h"

#define FLASH_ATTENTION_PUSH(FIELD)                                                               \
  FIELD(ADDRESS, q)             /* float [row][q_stride], heads in order */                       \
  FIELD(ADDRESS, positions)     /* uint [row] */                                                  \
  FIELD(ADDRESS, block_table)   /* address [seq][table_stride] */                                 \
  FIELD(ADDRESS, items)         /* AttentionItem [gl_NumWorkGroups.x] */                          \
  FIELD(ADDRESS, y)             /* float [row][y_stride], heads in order */                       \
  FIELD(ADDRESS, partial_stats) /* vec2 [slot][n_heads]: (maximum, sum) */                        \
  FIELD(ADDRESS, partial_y)     /* float [slot][n_heads * value_dim], not yet normalised */       \
  FIELD(ADDRESS, sinks)         /* float [n_heads], if has_sinks */                               \
  FIELD(ADDRESS, carried)       /* what each workgroup has in registers between dispatches that \
                                   share out its KV tiles, by gl_WorkGroupID */ \
  FIELD(uint, q_stride)                                                                           \
  FIELD(uint, y_stride)                                                                           \
  FIELD(uint, table_stride)                                                                       \
  FIELD(uint, layer_offset) /* bytes from a block's start to this layer's K */                    \
  FIELD(uint, n_kv_heads)                                                                         \
  FIELD(float, scale)                                                                             \
  FIELD(uint, first_head_tile) /* of this dispatch, among those of all kv heads */                \
  FIELD(uint, first_key_tile)  /* of each item, of this dispatch */                               \
  FIELD(uint, n_key_tiles)     /* of each item at most */
PUMICE_PUSH_CONSTANTS(FlashAttentionPush, FLASH_ATTENTION_PUSH)

#define FLASH_ATTENTION_SPEC(CONSTANT)                                                          \
  CONSTANT(0, uint, workgroup_size, 64) /* keys of a KV tile: one a lane */                     \
  CONSTANT(1, uint, head_dim, 64)                                                               \
  CONSTANT(2, uint, tile_rows, 16)  /* (token, head) pairs of a tile */                         \
  CONSTANT(3, uint, tile_heads, 1)  /* heads of a tile, at most group */                        \
  CONSTANT(4, uint, group, 1)       /* query heads that share a kv head */                      \
  CONSTANT(5, uint, k_type, 1)      /* common/kv_types.h */                                     \
  CONSTANT(6, uint, window, 0)      /* keys a row sees, its own included; 0: all */             \
  CONSTANT(7, float, soft_cap, 0)   /* scores become cap * tanh(score / cap); 0: they do not */ \
  CONSTANT(14, uint, v_type, 1)     /* 8 to 13 are of matrices alone */                         \
  CONSTANT(15, uint, has_sinks, 0)  /* each head has a key without value, of its own score */   \
  CONSTANT(16, uint, latent_dim, 0) /* a key's first numbers are its value; 0: there is V */    \
  CONSTANT(17, uint, v_dim, 64)     /* numbers of a row of V, at most head_dim */
PUMICE_SPEC_CONSTANTS(FlashAttentionSpec, FLASH_ATTENTION_SPEC)

#endif
