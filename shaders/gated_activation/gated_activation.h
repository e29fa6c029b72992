// Interface of gated_activation.comp.
#ifndef PUMICE_SHADERS_GATED_ACTIVATION_H
#define PUMICE_SHADERS_GATED_ACTIVATION_H

#include "common/activation.h"
#include "common/interface.h"

#define GATED_ACTIVATION_PUSH(FIELD)                                   \
  FIELD(ADDRESS, gate_up) /* float [rows][2n]: gate, then up */        \
  FIELD(ADDRESS, y)       /* float [rows][n] */                        \
  FIELD(ADDRESS, planes)  /* y once more as PlanesOfX, if to_planes */ \
  FIELD(uint, n)                                                       \
  FIELD(uint, to_planes) /* where it makes_planes; n is a multiple of 32 */
PUMICE_PUSH_CONSTANTS(GatedActivationPush, GATED_ACTIVATION_PUSH)

#define GATED_ACTIVATION_SPEC(CONSTANT)    \
  CONSTANT(0, uint, workgroup_size, 64)    \
  CONSTANT(1, uint, kind, ACTIVATION_SILU) \
  CONSTANT(2, uint, makes_planes, 0)
PUMICE_SPEC_CONSTANTS(GatedActivationSpec, GATED_ACTIVATION_SPEC)

#endif
