// Activations as two planes of bytes, for integer dot products (PlanesOfX of quantize_x/quantize_x.hpp): a
// block of 32 is
//
//   x = scale * (256 * high + low)      scale = the largest magnitude / 32512
//
// with the sums of x / scale of its first and its last half, and of all, which are exact.
#ifndef PUMICE_SHADERS_COMMON_X_PLANES_GLSL
#define PUMICE_SHADERS_COMMON_X_PLANES_GLSL

#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require

layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer XPlanes {
  uvec4 high[2];
  uvec4 low[2];
  vec4 scale_sums;
};

const uint kPlanesBytes = 80;  // of a block

#endif
