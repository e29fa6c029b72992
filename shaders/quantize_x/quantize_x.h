// Interface of quantize_x.comp, halve_x.comp and planes_of_x.comp.
#ifndef PUMICE_SHADERS_QUANTIZE_X_H
#define PUMICE_SHADERS_QUANTIZE_X_H

#include "common/interface.h"

// Rows of halves are zero up to a multiple of so many columns.
#define HALVED_COLS 64

#define QUANTIZE_X_PUSH(FIELD)                                                                  \
  FIELD(ADDRESS, x)      /* float [rows][x_stride], 16-byte aligned */                          \
  FIELD(ADDRESS, quants) /* uint [k / 32][rows][8], 16-byte aligned; or HalvedX or PlanesOfX */ \
  FIELD(ADDRESS, scales) /* uvec2 [k / 32][rows], of quantize_x.comp alone */                   \
  FIELD(uint, rows)                                                                             \
  FIELD(uint, k)        /* a multiple of 32, of halves of 4 */                                  \
  FIELD(uint, x_stride) /* in floats, a multiple of 4 */
PUMICE_PUSH_CONSTANTS(QuantizeXPush, QUANTIZE_X_PUSH)

#define QUANTIZE_X_SPEC(CONSTANT) CONSTANT(0, uint, workgroup_size, 64) /* a multiple of 8 */
PUMICE_SPEC_CONSTANTS(QuantizeXSpec, QUANTIZE_X_SPEC)

#endif
