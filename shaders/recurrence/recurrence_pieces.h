// Interface of recurrence_pieces.comp.
#ifndef PUMICE_SHADERS_RECURRENCE_PIECES_H
#define PUMICE_SHADERS_RECURRENCE_PIECES_H

#include "recurrence/recurrence_push.h"

// Invocations that share a column of a head's state, and columns of an invocation.
#define RECURRENCE_PIECES_LANES 8
#define RECURRENCE_PIECES_LANE_COLUMNS 2

// The push constants are recurrence.comp's; first_row and n_rows are whole pieces.
#define RECURRENCE_PIECES_SPEC(CONSTANT)                                                 \
  CONSTANT(0, uint, workgroup_size, 128)                                                 \
  CONSTANT(1, uint, key_dim, 128)                                                        \
  CONSTANT(2, uint, value_dim, 64)                                                       \
  CONSTANT(3, uint, key_heads, 1)                                                        \
  CONSTANT(4, uint, heads_per_key, 1)                                                    \
  CONSTANT(5, uint, by_remainder, 0) /* head h reads key head h mod key_heads, not h div \
                                        heads_per_key */                                 \
  CONSTANT(6, uint, delta, 0)                                                            \
  CONSTANT(7, uint, has_d, 0)                                                            \
  CONSTANT(8, uint, piece_rows, 16) /* a multiple of 4 */
PUMICE_SPEC_CONSTANTS(RecurrencePiecesSpec, RECURRENCE_PIECES_SPEC)

#endif
