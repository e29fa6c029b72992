// What recurrence.comp, recurrence_pieces.comp and recurrence_states.comp are all told.
#ifndef PUMICE_SHADERS_RECURRENCE_INTERFACE_H
#define PUMICE_SHADERS_RECURRENCE_INTERFACE_H

#include "common/interface.h"

#define RECURRENCE_PUSH(FIELD)                                                            \
  FIELD(ADDRESS, q)     /* float [rows][q_stride]: [key_head][key_dim] */                 \
  FIELD(ADDRESS, k)     /* float [rows][k_stride], likewise */                            \
  FIELD(ADDRESS, v)     /* float [rows][v_stride]: [head][value_dim] */                   \
  FIELD(ADDRESS, step)  /* float [rows][step_stride]: [head], [head][key_dim] or        \
                           [head][value_dim], as decay says */ \
  FIELD(ADDRESS, beta)  /* float [rows][beta_stride]: [head], if delta */                 \
  FIELD(ADDRESS, a)     /* float [head], or of states [head][value_dim][key_dim] */       \
  FIELD(ADDRESS, bias)  /* float, as a row of step */                                     \
  FIELD(ADDRESS, d)     /* float [head], or of states [head][value_dim]; if has_d */      \
  FIELD(ADDRESS, y)     /* float [rows][y_stride]: [head][value_dim] */                   \
  FIELD(ADDRESS, items) /* StateItem [n_items] */                                         \
  FIELD(uint, q_stride)                                                                   \
  FIELD(uint, k_stride)                                                                   \
  FIELD(uint, v_stride)                                                                   \
  FIELD(uint, step_stride)                                                                \
  FIELD(uint, beta_stride)                                                                \
  FIELD(uint, y_stride)                                                                   \
  FIELD(uint, state_offset) /* bytes from a page to float [head][value_dim][key_dim] */   \
  FIELD(uint, first_head)   /* of this dispatch */                                        \
  FIELD(uint, first_row)    /* of each item's rows, of this dispatch */                   \
  FIELD(uint, n_rows)       /* of each item at most */                                    \
  FIELD(float, q_scale)                                                                   \
  FIELD(float, k_scale)
PUMICE_PUSH_CONSTANTS(RecurrencePush, RECURRENCE_PUSH)

// What of a head's state decays alike.
#define RECURRENCE_DECAY_HEAD 0
#define RECURRENCE_DECAY_KEY 1

// Constants of the heads, and with those of the shape; each kernel's own are around them.
#define RECURRENCE_HEADS(CONSTANT)                                                         \
  CONSTANT(1, uint, key_dim, 128)                                                          \
  CONSTANT(2, uint, value_dim, 64)                                                         \
  CONSTANT(3, uint, key_heads, 1)                                                          \
  CONSTANT(4, uint, heads_per_key, 1)                                                      \
  CONSTANT(5, uint, by_remainder, 0) /* head h reads key head h mod key_heads, not h div \
                                        heads_per_key */ \
  CONSTANT(6, uint, has_d, 0)
#define RECURRENCE_SHAPE(CONSTANT) \
  RECURRENCE_HEADS(CONSTANT)       \
  CONSTANT(7, uint, delta, 0)      \
  CONSTANT(8, uint, decay, RECURRENCE_DECAY_HEAD) /* or that of a key, which asks for a delta */

#endif
