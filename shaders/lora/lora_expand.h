// Interface of lora_expand.comp.
#ifndef PUMICE_SHADERS_LORA_EXPAND_H
#define PUMICE_SHADERS_LORA_EXPAND_H

#include "common/interface.h"
#include "lora/lora_rows.h"

#define LORA_EXPAND_PUSH(FIELD)                                                                   \
  FIELD(ADDRESS, t)        /* float [rows][4 * n_quads] */                                        \
  FIELD(ADDRESS, b)        /* float [adapters][n_quads][b_stride][4], from its first output on */ \
  FIELD(ADDRESS, adapters) /* uint [rows]: 1 + the row's adapter; 0: it has none */               \
  FIELD(ADDRESS, y)        /* float [rows][y_stride], updated */                                  \
  FIELD(uint, b_stride)    /* outputs that b has */                                               \
  FIELD(uint, y_stride)                                                                           \
  FIELD(uint, n)       /* numbers of a row of y */                                                \
  FIELD(uint, n_quads) /* fours of ranks */                                                       \
  FIELD(uint, rows)
PUMICE_PUSH_CONSTANTS(LoraExpandPush, LORA_EXPAND_PUSH)

#define LORA_EXPAND_SPEC(CONSTANT) CONSTANT(0, uint, workgroup_size, 64)
PUMICE_SPEC_CONSTANTS(LoraExpandSpec, LORA_EXPAND_SPEC)

#endif
