// Interface of sampling.comp.
#ifndef PUMICE_SHADERS_SAMPLING_H
#define PUMICE_SHADERS_SAMPLING_H

#include "common/interface.h"

#define SAMPLING_PUSH(FIELD)                                                             \
  FIELD(ADDRESS, logits)  /* float [rows][n_vocab] */                                    \
  FIELD(ADDRESS, rows)    /* SamplingRow [rows] */                                       \
  FIELD(ADDRESS, sampled) /* uint [*], by place: the chosen ids */                       \
  FIELD(ADDRESS, scratch) /* uint [rows][n_vocab], for rows with counts, mask or bias */ \
  FIELD(uint, n_vocab)                                                                   \
  FIELD(uint, n_slices) /* in two stages, else 1 */
PUMICE_PUSH_CONSTANTS(SamplingPush, SAMPLING_PUSH)

#define SAMPLING_SPEC(CONSTANT)                               \
  CONSTANT(0, uint, workgroup_size, 128) /* a power of two */ \
  CONSTANT(1, uint, flight, 1)           /* times four tokens that a lane loads at once */
PUMICE_SPEC_CONSTANTS(SamplingSpec, SAMPLING_SPEC)

// How one row is sampled; the numbers are those of pumice::SamplerConstants. Rows that follow one another share their
// counts: what a row chose is counted before the next one chooses.
#define SAMPLING_ROW(FIELD)                                                          \
  FIELD(ADDRESS, counts) /* uint [n_vocab]: occurrences, updated; 0: no penalties */ \
  FIELD(ADDRESS, mask)   /* uint [ceil(n_vocab / 32)]: allowed tokens; 0: all */     \
  FIELD(ADDRESS, bias)   /* uvec2 [n_bias]: (id, float bits), ids all different */   \
  FIELD(uint, n_bias)                                                                \
  FIELD(float, repeat)                                                               \
  FIELD(float, inverse_repeat)                                                       \
  FIELD(float, frequency)                                                            \
  FIELD(float, presence)                                                             \
  FIELD(float, inverse_temperature) /* 0: greedy */                                  \
  FIELD(uint, top_k)                /* 2^32 - 1: off */                              \
  FIELD(uint, top_p_q32)            /* 2^32 - 1: off */                              \
  FIELD(uint, min_p_q24)            /* 0: off */                                     \
  FIELD(uint, seed_low)                                                              \
  FIELD(uint, seed_high)                                                             \
  FIELD(uint, index_low) /* of the token in its request's output */                  \
  FIELD(uint, index_high)                                                            \
  FIELD(uint, place)       /* where in `sampled` the id goes */                      \
  FIELD(uint, skip)        /* not 0: only pads the batch, or follows another row */  \
  FIELD(uint, n_followers) /* rows behind it that follow it, one the other */        \
  FIELD(uint, drafted)     /* the next one follows only if this is the id */         \
  FIELD(uint, unused)
PUMICE_STRUCT(SamplingRow, SAMPLING_ROW)

#endif
