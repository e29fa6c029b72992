// Interface of peak_memory.comp.
#ifndef PUMICE_SHADERS_PEAK_MEMORY_H
#define PUMICE_SHADERS_PEAK_MEMORY_H

#include "common/interface.h"

#define PEAK_MEMORY_PUSH(FIELD)                                                            \
  FIELD(ADDRESS, source) /* uvec4 [workgroups][n_passes][4][workgroup_size] */             \
  FIELD(ADDRESS,                                                                           \
        target) /* read: uint [invocations], the xor of what each read; copy: as source */ \
  FIELD(uint, n_passes)
PUMICE_PUSH_CONSTANTS(PeakMemoryPush, PEAK_MEMORY_PUSH)

#define PEAK_MEMORY_SPEC(CONSTANT) CONSTANT(0, uint, workgroup_size, 128)
PUMICE_SPEC_CONSTANTS(PeakMemorySpec, PEAK_MEMORY_SPEC)

#endif
