// Interface of recurrence.comp.
#ifndef PUMICE_SHADERS_RECURRENCE_H
#define PUMICE_SHADERS_RECURRENCE_H

#include "recurrence/recurrence_interface.h"

#define RECURRENCE_SPEC(CONSTANT)       \
  CONSTANT(0, uint, workgroup_size, 64) \
  RECURRENCE_SHAPE(CONSTANT)
PUMICE_SPEC_CONSTANTS(RecurrenceSpec, RECURRENCE_SPEC)

#endif
