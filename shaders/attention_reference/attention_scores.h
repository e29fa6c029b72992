// Interface of attention_scores.comp.
#ifndef PUMICE_SHADERS_ATTENTION_SCORES_H
#define PUMICE_SHADERS_ATTENTION_SCORES_H

#include "common/interface.h"

#define ATTENTION_SCORES_PUSH(FIELD)                                           \
  FIELD(ADDRESS, q)           /* float [row][q_stride], heads in order */      \
  FIELD(ADDRESS, positions)   /* uint [row], rising */                         \
  FIELD(ADDRESS, block_table) /* address [n_keys / 16] */                      \
  FIELD(ADDRESS, scores)      /* float [n_heads][n_rows][n_keys], in base 2 */ \
  FIELD(uint, q_stride)                                                        \
  FIELD(uint, layer_offset) /* bytes from a block's start to this layer's K */ \
  FIELD(uint, n_rows)                                                          \
  FIELD(uint, n_keys)                                                          \
  FIELD(float, scale)
PUMICE_PUSH_CONSTANTS(AttentionScoresPush, ATTENTION_SCORES_PUSH)

#define ATTENTION_SCORES_SPEC(CONSTANT)                                  \
  CONSTANT(0, uint, workgroup_size, 64) /* keys of a tile: one a lane */ \
  CONSTANT(1, uint, head_dim, 64)                                        \
  CONSTANT(2, uint, tile_rows, 8)                                        \
  CONSTANT(3, uint, group, 1)  /* query heads that share a kv head */    \
  CONSTANT(4, uint, k_type, 1) /* common/kv_types.h */
PUMICE_SPEC_CONSTANTS(AttentionScoresSpec, ATTENTION_SCORES_SPEC)

#endif
