// Where keys and values of a head lie in a KV block (common/kv_layout.hpp), counted from the first
// byte of the head. Included after the constant head_dim.
#ifndef PUMICE_SHADERS_COMMON_KV_LAYOUT_GLSL
#define PUMICE_SHADERS_COMMON_KV_LAYOUT_GLSL

#include "common/kv_types.h"

const uint kv_scale_words = (head_dim + 63) / 64;  // of a token; a word holds the scales of 64 elements

bool kv_quantised(uint type) { return type >= KV_Q8_0; }

/// Bytes of a token's elements, without their scales.
uint kv_value_bytes(uint type) {
  return type == KV_F32 ? head_dim * 4 : type == KV_Q8_0 ? head_dim : type == KV_Q4_0 ? head_dim / 2 : head_dim * 2;
}

/// Bytes of a head's 16 tokens.
uint kv_head_bytes(uint type) {
  return 16 * (kv_value_bytes(type) + (kv_quantised(type) ? kv_scale_words * 4 : 0));
}

/// Where a layer's K and V of a head begin, counted from the layer's K.
uint k_head_offset(uint kv_head, uint k_type) { return kv_head * kv_head_bytes(k_type); }
uint v_head_offset(uint kv_head, uint n_kv_heads, uint k_type, uint v_type) {
  return n_kv_heads * kv_head_bytes(k_type) + kv_head * kv_head_bytes(v_type);
}

#endif
