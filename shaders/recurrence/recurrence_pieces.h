// Interface of recurrence_pieces.comp.
#ifndef PUMICE_SHADERS_RECURRENCE_PIECES_H
#define PUMICE_SHADERS_RECURRENCE_PIECES_H

#include "recurrence/recurrence_interface.h"

// Invocations that share a column of a head's state, and columns of an invocation.
#define RECURRENCE_PIECES_LANES 8
#define RECURRENCE_PIECES_LANE_COLUMNS 2

// The push constants are recurrence.comp's; first_row and n_rows are whole pieces. States do not
// decay number by number.
#define RECURRENCE_PIECES_SPEC(CONSTANT) \
  CONSTANT(0, uint, workgroup_size, 128) \
  RECURRENCE_SHAPE(CONSTANT)             \
  CONSTANT(9, uint, piece_rows, 16) /* a multiple of 4 */
PUMICE_SPEC_CONSTANTS(RecurrencePiecesSpec, RECURRENCE_PIECES_SPEC)

#endif
