// Octets, eight elements of a token, of K and V as memory has them, so that many are under way at once
// before the first is decoded.
#ifndef PUMICE_SHADERS_FLASH_ATTENTION_KV_OCTETS_GLSL
#define PUMICE_SHADERS_FLASH_ATTENTION_KV_OCTETS_GLSL

#include "flash_attention/kv_elements.glsl"

layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer KvUnits { uvec4 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer KvPairs { uvec2 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer KvWords { uint v[]; };

/// What is not there for a type is never loaded.
struct Octet {
  uvec4 words;
  uvec4 more;  // of F32 the other four; of quantised types the word with the scale, and nothing
};

/// Addresses of an octet and its scale. Others lie at constant distances from them.
struct OctetPlace {
  uvec2 units, scales;
};

/// Of a token in the head of K at `head`.
OctetPlace place_of_k(uvec2 head, uint token, uint octet) {
  const uint unit = k_type == KV_F32    ? octet * 512 + token * 16
                    : k_type == KV_Q8_0 ? octet / 2 * 256 + token * 16 + octet % 2 * 8
                    : k_type == KV_Q4_0 ? octet / 4 * 256 + token * 16 + octet % 4 * 4
                                        : octet * 256 + token * 16;
  const uint scale = 16 * kv_value_bytes(k_type, head_dim) + octet / 8 * 64 + token * 4;
  return OctetPlace(address_add(head, unit), kv_quantised(k_type) ? address_add(head, scale) : head);
}

/// The octet `tokens` tokens and `octets` octets behind that place; octets is 0 unless the place's is 0.
Octet load_octet_of_k(OctetPlace at, uint tokens, uint octets) {
  if (k_type == KV_F32) {
    return Octet(KvUnits(at.units).v[octets * 32 + tokens], KvUnits(at.units).v[octets * 32 + 16 + tokens]);
  }
  if (!kv_quantised(k_type)) return Octet(KvUnits(at.units).v[octets * 16 + tokens], uvec4(0));
  const uvec4 scale = uvec4(KvWords(at.scales).v[octets / 8 * 16 + tokens], 0, 0, 0);
  if (k_type == KV_Q8_0) {
    return Octet(uvec4(KvPairs(at.units).v[octets / 2 * 32 + octets % 2 + tokens * 2], 0, 0), scale);
  }
  return Octet(uvec4(KvWords(at.units).v[octets / 4 * 64 + octets % 4 + tokens * 4], 0, 0, 0), scale);
}

/// Of a token in the head of V at `head`.
OctetPlace place_of_v(uvec2 head, uint token, uint octet) {
  const uint octet_bytes = kv_value_bytes(v_type, 8);
  const uint scale = 16 * kv_value_bytes(v_type, v_dim) + (token * kv_scale_words(v_dim) + octet / 8) * 4;
  return OctetPlace(address_add(head, (token * (v_dim / 8) + octet) * octet_bytes),
                    kv_quantised(v_type) ? address_add(head, scale) : head);
}

/// The octet of the token `tokens` behind that place's.
Octet load_octet_of_v(OctetPlace at, uint tokens) {
  const uint n = tokens * (v_dim / 8);
  if (v_type == KV_F32) return Octet(KvUnits(at.units).v[n * 2], KvUnits(at.units).v[n * 2 + 1]);
  if (!kv_quantised(v_type)) return Octet(KvUnits(at.units).v[n], uvec4(0));
  const uvec4 scale = uvec4(KvWords(at.scales).v[tokens * kv_scale_words(v_dim)], 0, 0, 0);
  if (v_type == KV_Q8_0) return Octet(uvec4(KvPairs(at.units).v[n], 0, 0), scale);
  return Octet(uvec4(KvWords(at.units).v[n], 0, 0, 0), scale);
}

/// Its elements; of quantised types before they are scaled.
void decode_octet(uint type, Octet octet, out vec4 low, out vec4 high) {
  if (type == KV_F32) {
    low = uintBitsToFloat(octet.words);
    high = uintBitsToFloat(octet.more);
  } else if (type == KV_Q8_0) {
    low = q8_quad(octet.words.x);
    high = q8_quad(octet.words.y);
  } else if (type == KV_Q4_0) {
    low = q4_quad(octet.words.x);
    high = q4_quad(octet.words.x >> 16);
  } else {
    low = kv_quad(type, octet.words.xy);
    high = kv_quad(type, octet.words.zw);
  }
}

/// Of quantised types, the scale of a token's octet number `index`.
float octet_scale(Octet octet, uint index) { return kv_scale(octet.more.x, index / 4); }

#endif
