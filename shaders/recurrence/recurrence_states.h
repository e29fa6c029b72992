// Interface of recurrence_states.comp.
#ifndef PUMICE_SHADERS_RECURRENCE_STATES_H
#define PUMICE_SHADERS_RECURRENCE_STATES_H

#include "recurrence/recurrence_interface.h"

// The push constants are recurrence.comp's. Each number of a state decays by itself, and nothing is
// a delta.
#define RECURRENCE_STATES_SPEC(CONSTANT) \
  CONSTANT(0, uint, workgroup_size, 64)  \
  RECURRENCE_HEADS(CONSTANT)             \
  CONSTANT(9, uint, piece_rows, 16) /* whose keys and queries are shared at a time */
PUMICE_SPEC_CONSTANTS(RecurrenceStatesSpec, RECURRENCE_STATES_SPEC)

#endif
