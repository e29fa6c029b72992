// Views of memory at a device address. Addresses are uvec2 (low, high), so no 64-bit integers are
// needed; indices are 32-bit.
#ifndef PUMICE_SHADERS_COMMON_BUFFERS_GLSL
#define PUMICE_SHADERS_COMMON_BUFFERS_GLSL

#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_EXT_control_flow_attributes : require

layout(buffer_reference, std430, buffer_reference_align = 4) buffer Floats { float v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Uints { uint v[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) buffer Uvec2s { uvec2 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) buffer Vec2s { vec2 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer Uvec4s { uvec4 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer Vec4s { vec4 v[]; };

/// The address `bytes` further on.
uvec2 address_add(uvec2 address, uint bytes) {
  const uint low = address.x + bytes;
  return uvec2(low, address.y + uint(low < bytes));
}

#endif
