// Interface of recurrence.comp.
#ifndef PUMICE_SHADERS_RECURRENCE_H
#define PUMICE_SHADERS_RECURRENCE_H

#include "recurrence/recurrence_push.h"

// What of a head's state decays alike.
#define RECURRENCE_DECAY_HEAD 0
#define RECURRENCE_DECAY_KEY 1
#define RECURRENCE_DECAY_STATE 2

#define RECURRENCE_SPEC(CONSTANT)                                                        \
  CONSTANT(0, uint, workgroup_size, 64)                                                  \
  CONSTANT(1, uint, key_dim, 128)                                                        \
  CONSTANT(2, uint, value_dim, 64)                                                       \
  CONSTANT(3, uint, key_heads, 1)                                                        \
  CONSTANT(4, uint, heads_per_key, 1)                                                    \
  CONSTANT(5, uint, by_remainder, 0) /* head h reads key head h mod key_heads, not h div \
                                        heads_per_key */                                 \
  CONSTANT(6, uint, delta, 0)                                                            \
  CONSTANT(7, uint, has_d, 0)                                                            \
  CONSTANT(8, uint, decay, RECURRENCE_DECAY_HEAD) /* that of a key asks for a delta */
PUMICE_SPEC_CONSTANTS(RecurrenceSpec, RECURRENCE_SPEC)

#endif
