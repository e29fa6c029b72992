// Interface of peak_touch.comp.
#ifndef PUMICE_SHADERS_PEAK_TOUCH_H
#define PUMICE_SHADERS_PEAK_TOUCH_H

#include "common/interface.h"

#define PEAK_TOUCH_PUSH(FIELD)     \
  FIELD(ADDRESS, y) /* one word */ \
  FIELD(uint, value)
PUMICE_PUSH_CONSTANTS(PeakTouchPush, PEAK_TOUCH_PUSH)

#define PEAK_TOUCH_SPEC(CONSTANT) CONSTANT(0, uint, workgroup_size, 32)
PUMICE_SPEC_CONSTANTS(PeakTouchSpec, PEAK_TOUCH_SPEC)

#endif
