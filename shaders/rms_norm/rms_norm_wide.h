// Interface of rms_norm_wide.comp; its push constants are RmsNormPush.
#ifndef PUMICE_SHADERS_RMS_NORM_WIDE_H
#define PUMICE_SHADERS_RMS_NORM_WIDE_H

#include "common/interface.h"

#define RMS_NORM_WIDE_SPEC(CONSTANT)                       \
  CONSTANT(0, uint, workgroup_size, 128) /* at most 512 */ \
  CONSTANT(1, uint, quads, 1)            /* of a row that a lane holds */
PUMICE_SPEC_CONSTANTS(RmsNormWideSpec, RMS_NORM_WIDE_SPEC)

#endif
