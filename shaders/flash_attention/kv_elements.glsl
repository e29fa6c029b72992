// Elements of K and V in a KV block (common/kv_layout.hpp), by their type.
#ifndef PUMICE_SHADERS_FLASH_ATTENTION_KV_ELEMENTS_GLSL
#define PUMICE_SHADERS_FLASH_ATTENTION_KV_ELEMENTS_GLSL

#include "common/kv_layout.glsl"

/// Two elements of a 16-bit type.
vec2 kv_pair(uint type, uint word) {
  return type == KV_BF16 ? uintBitsToFloat(uvec2(word << 16, word & 0xFFFF0000u))
                         : unpackHalf2x16(word);
}

vec4 kv_quad(uint type, uvec2 words) { return vec4(kv_pair(type, words.x), kv_pair(type, words.y)); }

/// The integers of Q8_0 in a word, and of Q4_0 in its lower half.
vec4 q8_quad(uint word) { return vec4(ivec4(word << 24, word << 16, word << 8, word) >> 24); }
vec4 q4_quad(uint word) { return vec4((uvec4(word, word >> 4, word >> 8, word >> 12) & 15u)) - 8.0; }

/// The scale of block `block` of 32 elements, in the word of it and its neighbour.
float kv_scale(uint word, uint block) { return unpackHalf2x16(block % 2 == 0 ? word : word >> 16).x; }

/// load_k of the quantised types.
void load_quantised_k(uint type, uvec2 address, uint token, uint octet, out vec4 low, out vec4 high) {
  const uint to_scales = 16 * kv_value_bytes(type, head_dim) - 12 * token;
  const uint block = octet / 4;
  const float scale =
      kv_scale(Uints(address_add(address, to_scales)).v[block / 2 * 16], block);
  if (type == KV_Q8_0) {
    const uvec2 words = Uvec2s(address).v[octet / 2 * 32 + octet % 2];
    low = scale * q8_quad(words.x);
    high = scale * q8_quad(words.y);
  } else {
    const uint word = Uints(address).v[block * 64 + octet % 4];
    low = scale * q4_quad(word);
    high = scale * q4_quad(word >> 16);
  }
}

/// Elements [8 * octet, 8 * octet + 8) of the key of `token`, whose first unit is at `address`.
void load_k(uint type, uvec2 address, uint token, uint octet, out vec4 low, out vec4 high) {
  Uvec4s units = Uvec4s(address);  // a token's units lie 16 units apart
  if (kv_quantised(type)) {
    load_quantised_k(type, address, token, octet, low, high);
  } else if (type == KV_F32) {
    low = uintBitsToFloat(units.v[octet * 32]);
    high = uintBitsToFloat(units.v[octet * 32 + 16]);
  } else {
    const uvec4 unit = units.v[octet * 16];
    low = kv_quad(type, unit.xy);
    high = kv_quad(type, unit.zw);
  }
}

/// Elements [4 * quad, 4 * quad + 4) of the key of `token` in the head of K at `address`.
vec4 load_quad_of_k(uint type, uvec2 address, uint token, uint quad) {
  if (type == KV_F32) return Vec4s(address).v[quad * 16 + token];
  if (!kv_quantised(type)) {
    return kv_quad(type, Uvec2s(address).v[(quad / 2 * 16 + token) * 2 + quad % 2]);
  }
  Uints words = Uints(address);
  const uint block = quad / 8;
  const float scale = kv_scale(words.v[4 * kv_value_bytes(type, head_dim) + block / 2 * 16 + token], block);
  if (type == KV_Q8_0) return scale * q8_quad(words.v[quad / 4 * 64 + token * 4 + quad % 4]);
  return scale * q4_quad(words.v[block * 64 + token * 4 + quad % 8 / 2] >> quad % 2 * 16);
}

/// Elements [4 * quad, 4 * quad + 4) of the value of `token` in the head of V at `address`.
vec4 load_v(uint type, uvec2 address, uint token, uint quad) {
  const uint at = token * (v_dim / 4) + quad;
  if (type == KV_F32) return Vec4s(address).v[at];
  if (!kv_quantised(type)) return kv_quad(type, Uvec2s(address).v[at]);
  Uints words = Uints(address);
  const uint block = quad / 8;
  const uint first_scale = 4 * kv_value_bytes(type, v_dim) + token * kv_scale_words(v_dim);
  const float scale = kv_scale(words.v[first_scale + block / 2], block);
  return scale * (type == KV_Q8_0 ? q8_quad(words.v[at]) : q4_quad(words.v[at / 2] >> at % 2 * 16));
}

#endif
