// Interface of rope_kv.comp.
#ifndef PUMICE_SHADERS_ROPE_KV_H
#define PUMICE_SHADERS_ROPE_KV_H

#include "common/interface.h"

#define ROPE_KV_PUSH(FIELD)                                                               \
  FIELD(ADDRESS, qkv)         /* float [rows][row_stride]: q, k, v; q rotated in place */ \
  FIELD(ADDRESS, rope_table)  /* vec2 [position][rope_dims / 2]: (cos, sin) */            \
  FIELD(ADDRESS, positions)   /* uint [rows] */                                           \
  FIELD(ADDRESS, row_seq)     /* uint [rows] */                                           \
  FIELD(ADDRESS, block_table) /* address [seq][table_stride] */                           \
  FIELD(uint, n_heads)                                                                    \
  FIELD(uint, n_kv_heads)                                                                 \
  FIELD(uint, row_stride)                                                                 \
  FIELD(uint, table_stride)                                                               \
  FIELD(uint, layer_offset) /* bytes from a block's start to this layer's K */
PUMICE_PUSH_CONSTANTS(RopeKvPush, ROPE_KV_PUSH)

#define ROPE_KV_SPEC(CONSTANT)                                                       \
  CONSTANT(0, uint, workgroup_size, 64)                                              \
  CONSTANT(1, uint, head_dim, 64)                                                    \
  CONSTANT(2, uint, rope_dims, 64)                                                   \
  CONSTANT(3, uint, halves, 0) /* rotate (i, i + rope_dims / 2), not (2i, 2i + 1) */ \
  CONSTANT(4, uint, k_type, 1) /* common/kv_types.h; not quantised */                \
  CONSTANT(5, uint, v_type, 1)                                                       \
  CONSTANT(6, uint, has_values, 1) /* else there is k alone */                       \
  CONSTANT(7, uint, v_dim, 64)     /* of a head of v, at most head_dim */
PUMICE_SPEC_CONSTANTS(RopeKvSpec, ROPE_KV_SPEC)

#endif
