// Elements of K and V in a block's planes (common/kv_layout.hpp). kv_f16 is the includer's.
#ifndef PUMICE_SHADERS_FLASH_ATTENTION_KV_ELEMENTS_GLSL
#define PUMICE_SHADERS_FLASH_ATTENTION_KV_ELEMENTS_GLSL

/// Elements [8 * octet, 8 * octet + 8) of the key at `address` (its first unit).
void load_k(uvec2 address, uint octet, out vec4 low, out vec4 high) {
  Uvec4s units = Uvec4s(address);  // a token's units lie 16 units apart
  if (kv_f16 != 0) {
    const uvec4 unit = units.v[octet * 16];
    low = vec4(unpackHalf2x16(unit.x), unpackHalf2x16(unit.y));
    high = vec4(unpackHalf2x16(unit.z), unpackHalf2x16(unit.w));
  } else {
    low = uintBitsToFloat(units.v[octet * 32]);
    high = uintBitsToFloat(units.v[octet * 32 + 16]);
  }
}

/// Elements [4 * quad, 4 * quad + 4) of the V plane at `address`.
vec4 load_v(uvec2 address, uint quad) {
  if (kv_f16 == 0) return Vec4s(address).v[quad];
  const uvec2 halves = Uvec2s(address).v[quad];
  return vec4(unpackHalf2x16(halves.x), unpackHalf2x16(halves.y));
}

#endif
