// Elements of K and V as halves for matrix cores, 8 of a token at a time (an octet). What a lane loads is kept
// as it came and decoded where it is stored, so that several loads are under way at once; but for types other
// than F16 and Q8_0, which are rounded where they are loaded.
#ifndef PUMICE_SHADERS_FLASH_ATTENTION_KV_HALVES_GLSL
#define PUMICE_SHADERS_FLASH_ATTENTION_KV_HALVES_GLSL

#include "flash_attention/kv_elements.glsl"

layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer KvUnits { uvec4 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer KvPairs { uvec2 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer KvWords { uint v[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer KvAddresses { uvec2 v[]; };

const float kLargestHalf = 65504.0;

f16vec4 to_half(vec4 value) {
  return f16vec4(clamp(value, vec4(-kLargestHalf), vec4(kLargestHalf)));
}

/// Bytes of a word become pairs 0 2 and 1 3, and so every four of an octet of Q8_0 are in that order.
/// Others are in theirs.
bool in_pairs(uint type) { return type == KV_Q8_0; }
uvec2 columns_of_pair(uint type, uint pair) {
  return in_pairs(type) ? uvec2(pair / 2 * 4 + pair % 2) + uvec2(0, 2) : uvec2(pair * 2) + uvec2(0, 1);
}

/// An octet in the order in which those of `type` are.
uvec4 halves_in_order(uint type, vec4 low, vec4 high) {
  if (in_pairs(type)) {
    low = low.xzyw;
    high = high.xzyw;
  }
  const f16vec4 first = to_half(low);
  const f16vec4 second = to_half(high);
  return uvec4(packFloat2x16(first.xy), packFloat2x16(first.zw), packFloat2x16(second.xy),
               packFloat2x16(second.zw));
}

/// An octet of a token in the head of K or V at `head`, and of those behind it: where it lies, what it lies in.
struct Octets {
  uvec2 units, scales;  // addresses
  uvec2 head;           // of what is decoded where it is loaded
  uint token, octet;
};

Octets octets_at(uvec2 head, uint token, uint octet, bool is_v) {
  const uint type = is_v ? v_type : k_type;
  Octets at = Octets(head, head, head, token, octet);
  if (type == KV_F16) {
    at.units = address_add(head, 16 * (is_v ? token * (v_dim / 8) + octet : octet * 16 + token));
  } else if (type == KV_Q8_0) {
    const uint dim = is_v ? v_dim : head_dim;
    at.units = address_add(
        head, is_v ? token * v_dim + octet * 8 : octet / 2 * 256 + token * 16 + octet % 2 * 8);
    at.scales = address_add(
        head, 16 * kv_value_bytes(type, dim) +
                  4 * (is_v ? token * kv_scale_words(dim) + octet / 8 : octet / 8 * 16 + token));
  }
  return at;
}

/// The octet of the token `n` behind that one, for halves_of_unit.
uvec4 load_unit(Octets at, uint n, bool is_v) {
  const uint type = is_v ? v_type : k_type;
  if (type == KV_F16) return KvUnits(at.units).v[is_v ? n * (v_dim / 8) : n];
  if (type == KV_Q8_0) {
    return uvec4(KvPairs(at.units).v[is_v ? n * (v_dim / 8) : n * 2],
                 KvWords(at.scales).v[is_v ? n * kv_scale_words(v_dim) : n], 0);
  }
  vec4 low, high;
  if (is_v) {
    low = load_v(type, at.head, at.token + n, at.octet * 2);
    high = load_v(type, at.head, at.token + n, at.octet * 2 + 1);
  } else {
    load_k(type, address_add(at.head, (at.token + n) * 16), at.token + n, at.octet, low, high);
  }
  return halves_in_order(type, low, high);
}

/// Two signed bytes, to which 128 has been added, in 256th parts. Put beneath the exponent of 4, they count
/// its lowest bits.
f16vec2 byte_pair(uint bytes) {
  return unpackFloat2x16(bytes & 0x00FF00FFu | 0x44004400u) - f16vec2(4.5hf);
}

/// The halves of a unit that load_unit loaded. Zeros are of zeros.
uvec4 halves_of_unit(uint type, uvec4 unit, uint octet) {
  if (type != KV_Q8_0) return unit;
  // Times 256, so that a small scale is no subnormal.
  const float scale = kv_scale(unit.z, octet / 4) * 256.0;
  const f16vec2 scales = f16vec2(float16_t(clamp(scale, -kLargestHalf, kLargestHalf)));
  const uvec2 words = unit.xy ^ 0x80808080u;
  return uvec4(packFloat2x16(byte_pair(words.x) * scales), packFloat2x16(byte_pair(words.x >> 8) * scales),
               packFloat2x16(byte_pair(words.y) * scales), packFloat2x16(byte_pair(words.y >> 8) * scales));
}

#endif
