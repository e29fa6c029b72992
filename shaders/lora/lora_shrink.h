// Interface of lora_shrink.comp.
#ifndef PUMICE_SHADERS_LORA_SHRINK_H
#define PUMICE_SHADERS_LORA_SHRINK_H

#include "common/interface.h"
#include "lora/lora_rows.h"

#define LORA_SHRINK_PUSH(FIELD)                                                     \
  FIELD(ADDRESS, x)        /* float [rows][x_stride] */                             \
  FIELD(ADDRESS, a)        /* float [adapters][n_quads][n][4] */                    \
  FIELD(ADDRESS, adapters) /* uint [rows]: 1 + the row's adapter; 0: it has none */ \
  FIELD(ADDRESS, t)        /* float [rows][4 * n_quads] */                          \
  FIELD(uint, x_stride)                                                             \
  FIELD(uint, n)       /* numbers of a row of x */                                  \
  FIELD(uint, n_quads) /* fours of ranks */                                         \
  FIELD(uint, rows)
PUMICE_PUSH_CONSTANTS(LoraShrinkPush, LORA_SHRINK_PUSH)

#define LORA_SHRINK_SPEC(CONSTANT) CONSTANT(0, uint, workgroup_size, 64)
PUMICE_SPEC_CONSTANTS(LoraShrinkSpec, LORA_SHRINK_SPEC)

#endif
