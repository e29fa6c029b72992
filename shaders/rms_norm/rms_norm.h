// Interface of rms_norm.comp.
#ifndef PUMICE_SHADERS_RMS_NORM_H
#define PUMICE_SHADERS_RMS_NORM_H

#include "common/interface.h"
#include "rms_norm/rms_norm_push.h"

#define RMS_NORM_SPEC(CONSTANT) CONSTANT(0, uint, workgroup_size, 64)
PUMICE_SPEC_CONSTANTS(RmsNormSpec, RMS_NORM_SPEC)

#endif
