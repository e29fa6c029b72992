// Reading activations four at a time.
#ifndef PUMICE_SHADERS_COMMON_X_QUADS_GLSL
#define PUMICE_SHADERS_COMMON_X_QUADS_GLSL

#include "common/buffers.glsl"

#ifdef X_BROADCAST
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#include "common/x_broadcast.h"
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer WideQuads {
  u64vec2 v[];
};
#endif

/// Floats [4 * index, 4 * index + 4) of a 16-byte aligned array.
vec4 load_quad(uvec2 address, uint index) {
#ifdef X_BROADCAST
  if (wide_loads != 0) {
    const u64vec2 words = WideQuads(address).v[index];
    return vec4(uintBitsToFloat(unpack32(words.x)), uintBitsToFloat(unpack32(words.y)));
  }
#endif
  return Vec4s(address).v[index];
}

#endif
