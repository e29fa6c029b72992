// What k and v become in a KV block (common/kv_layout.hpp). Included after the constants head_dim and v_dim.
#ifndef PUMICE_SHADERS_ROPE_KV_KV_WRITE_GLSL
#define PUMICE_SHADERS_ROPE_KV_KV_WRITE_GLSL

#include "common/buffers.glsl"
#include "common/half.glsl"
#include "common/kv_layout.glsl"

/// Store elements d and d + 1 (d is even) of the token's row in the head at `head`, in a type that is not
/// quantised.
void write_kv(uint type, uvec2 head, uint token, bool is_v, uint d, float low, float high) {
  const uint element_bytes = type == KV_F32 ? 4 : 2;
  const uint unit_elements = 16 / element_bytes;
  // K is [unit][token] with 16 bytes a unit, V is [token][head_dim].
  const uint k_byte = d / unit_elements * 256 + token * 16 + d % unit_elements * element_bytes;
  const uint v_byte = (token * v_dim + d) * element_bytes;
  const uvec2 target = address_add(head, is_v ? v_byte : k_byte);
  if (type == KV_F32) {
    Vec2s(target).v[0] = vec2(low, high);
  } else {
    Uints(target).v[0] = type == KV_BF16 ? bfloat2_bits(low, high) : half2_bits(low, high);
  }
}

#endif
