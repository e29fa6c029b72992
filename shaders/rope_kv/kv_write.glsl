// Where k and v go in a KV block (common/kv_layout.hpp). Included after the constants head_dim and
// kv_f16.
#ifndef PUMICE_SHADERS_ROPE_KV_KV_WRITE_GLSL
#define PUMICE_SHADERS_ROPE_KV_KV_WRITE_GLSL

#include "common/buffers.glsl"
#include "common/half.glsl"

const uint element_bytes = kv_f16 != 0 ? 2 : 4;
const uint unit_elements = 16 / element_bytes;
const uint units = head_dim / unit_elements;

/// Store elements d and d + 1 (d is even) of a head of k or v at the token's place in a block, of which
/// `block` is the address of the layer's K.
void write_kv(uvec2 block, uint n_kv_heads, uint token, bool is_v, uint kv_head, uint d, float low,
              float high) {
  // K is [kv_head][unit][token] with 16 bytes a unit, V is [kv_head][token][head_dim].
  const uint plane_bytes = 16 * n_kv_heads * head_dim * element_bytes;
  const uint k_byte = (kv_head * units + d / unit_elements) * 256 + token * 16 +
                      d % unit_elements * element_bytes;
  const uint v_byte = plane_bytes + ((kv_head * 16 + token) * head_dim + d) * element_bytes;
  const uvec2 target = address_add(block, is_v ? v_byte : k_byte);
  if (kv_f16 != 0) {
    Uints(target).v[0] = half2_bits(low, high);
  } else {
    Vec2s(target).v[0] = vec2(low, high);
  }
}

#endif
