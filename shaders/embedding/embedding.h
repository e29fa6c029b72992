// Interface of embedding.comp.
#ifndef PUMICE_SHADERS_EMBEDDING_H
#define PUMICE_SHADERS_EMBEDDING_H

#include "common/interface.h"

#define EMBEDDING_PUSH(FIELD)                                                      \
  FIELD(ADDRESS, tokens)  /* uint [rows] */                                        \
  FIELD(ADDRESS, sampled) /* uint [*]: the ids that words with bit 31 stand for */ \
  FIELD(ADDRESS, table)   /* part of the table, resident layout */                 \
  FIELD(ADDRESS, y)       /* float [rows][n] */                                    \
  FIELD(ADDRESS, grid)    /* of the table's type */                                \
  FIELD(uint, n)                                                                   \
  FIELD(uint, n_col_tiles)                                                         \
  FIELD(uint, last_token) /* of the whole table; greater ids count as this one */  \
  FIELD(uint, first_row)  /* of the part */                                        \
  FIELD(uint, n_rows)     /* of the part */                                        \
  FIELD(float, scale)     /* of all rows */
PUMICE_PUSH_CONSTANTS(EmbeddingPush, EMBEDDING_PUSH)

#define EMBEDDING_SPEC(CONSTANT) CONSTANT(0, uint, workgroup_size, 32)
PUMICE_SPEC_CONSTANTS(EmbeddingSpec, EMBEDDING_SPEC)

#endif
