// Where keys and values of a head lie in a KV block (common/kv_layout.hpp), counted from the first
// byte of the head. Included after the constants head_dim, of K, and v_dim, of V.
#ifndef PUMICE_SHADERS_COMMON_KV_LAYOUT_GLSL
#define PUMICE_SHADERS_COMMON_KV_LAYOUT_GLSL

#include "common/kv_types.h"

bool kv_quantised(uint type) { return type >= KV_Q8_0; }

/// Words of scales of a token's `dim` elements; each holds those of 64.
uint kv_scale_words(uint dim) { return (dim + 63) / 64; }

/// Bytes of a token's `dim` elements, without their scales.
uint kv_value_bytes(uint type, uint dim) {
  return type == KV_F32 ? dim * 4 : type == KV_Q8_0 ? dim : type == KV_Q4_0 ? dim / 2 : dim * 2;
}

/// Bytes of a head's 16 tokens.
uint kv_head_bytes(uint type, uint dim) {
  return 16 * (kv_value_bytes(type, dim) + (kv_quantised(type) ? kv_scale_words(dim) * 4 : 0));
}

/// Where a layer's K and V of a head begin, counted from the layer's K.
uint k_head_offset(uint kv_head, uint k_type) { return kv_head * kv_head_bytes(k_type, head_dim); }
uint v_head_offset(uint kv_head, uint n_kv_heads, uint k_type, uint v_type) {
  return n_kv_heads * kv_head_bytes(k_type, head_dim) + kv_head * kv_head_bytes(v_type, v_dim);
}

#endif
