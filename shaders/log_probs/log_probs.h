// Interface of log_probs.comp.
#ifndef PUMICE_SHADERS_LOG_PROBS_H
#define PUMICE_SHADERS_LOG_PROBS_H

#include "common/interface.h"

#define LOG_PROBS_PUSH(FIELD)                                                                    \
  FIELD(ADDRESS, logits)  /* float [rows][n_vocab] */                                            \
  FIELD(ADDRESS, rows)    /* LogProbsRow [rows] */                                               \
  FIELD(ADDRESS, sampled) /* uint [*]: the ids that tokens with bit 31 stand for */              \
  FIELD(ADDRESS, results) /* uvec2 [rows][stride]: (id, float bits): the token, then the best */ \
  FIELD(uint, n_vocab)                                                                           \
  FIELD(uint, stride)
PUMICE_PUSH_CONSTANTS(LogProbsPush, LOG_PROBS_PUSH)

#define LOG_PROBS_SPEC(CONSTANT) CONSTANT(0, uint, workgroup_size, 128) /* a power of two */
PUMICE_SPEC_CONSTANTS(LogProbsSpec, LOG_PROBS_SPEC)

// What is wanted of a row of logits.
#define LOG_PROBS_ROW(FIELD)                                             \
  FIELD(uint, token)     /* an id, or 2^31 | where in `sampled` it is */ \
  FIELD(uint, n_results) /* 0: nothing; else the token's and of so many best less 1 */
PUMICE_STRUCT(LogProbsRow, LOG_PROBS_ROW)

#endif
