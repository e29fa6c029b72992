// Interface of flash_attention_subgroup.comp: that of flash_attention.comp and these constants.
#ifndef PUMICE_SHADERS_FLASH_ATTENTION_SUBGROUP_H
#define PUMICE_SHADERS_FLASH_ATTENTION_SUBGROUP_H

#include "flash_attention/flash_attention.h"

// A workgroup is whole subgroups. column_lanes is a power of two, at least subgroup_size / 16 and at most
// subgroup_size; less than subgroup_size only if that is no less than value_dim / 8. flight is a power of two, unroll
// a multiple of it.
#define FLASH_ATTENTION_SUBGROUP_SPEC(CONSTANT)                                     \
  CONSTANT(8, uint, subgroup_size, 32)                                              \
  CONSTANT(9, uint, flight, 8)        /* octets of K, and of V, loaded at once */   \
  CONSTANT(10, uint, column_lanes, 8) /* that share the columns of a value */       \
  CONSTANT(11, uint, merge_rows, 1)   /* of y that are summed up at once */         \
  CONSTANT(12, uint, shared_q, 0)     /* q lies in shared memory, else in memory */ \
  CONSTANT(13, uint, unroll, 8)       /* octets of K of a loop's turn */
PUMICE_SPEC_CONSTANTS(FlashAttentionSubgroupSpec, FLASH_ATTENTION_SUBGROUP_SPEC)

#endif
