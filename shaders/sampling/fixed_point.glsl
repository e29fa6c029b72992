// The arithmetic of sampling/fixed_point.hpp and sampling/philox.hpp, step by step: those headers say
// what it is, and results are equal bit for bit. 64-bit numbers are uvec2 (low, high).
#ifndef PUMICE_SHADERS_SAMPLING_FIXED_POINT_GLSL
#define PUMICE_SHADERS_SAMPLING_FIXED_POINT_GLSL

const uint kOneWeight = 1u << 24;
const uint kKeyOfMinusInfinity = 0x007FFFFFu;
const uint kKeyOfMasked = 0;

uvec2 add64(uvec2 a, uvec2 b) {
  const uint low = a.x + b.x;
  return uvec2(low, a.y + b.y + uint(low < a.x));
}
uvec2 subtract64(uvec2 a, uvec2 b) { return uvec2(a.x - b.x, a.y - b.y - uint(a.x < b.x)); }
bool less64(uvec2 a, uvec2 b) { return a.y < b.y || (a.y == b.y && a.x < b.x); }
uvec2 multiply64(uint a, uint b) {
  uvec2 product;
  umulExtended(a, b, product.y, product.x);
  return product;
}

float canonical_bits(uint bits) {
  const uint magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) bits = 0xFF800000u;
  if (bits == 0x7F800000u) bits = 0x7F7FFFFFu;
  if (magnitude < 0x00800000u) bits = 0;
  return uintBitsToFloat(bits);
}
float canonical(float value) { return canonical_bits(floatBitsToUint(value)); }

uint score_key(float canonical_score) {
  const uint bits = floatBitsToUint(canonical_score);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
float score_of_key(uint key) {
  return uintBitsToFloat((key & 0x80000000u) != 0 ? key & 0x7FFFFFFFu : ~key);
}

uint fixed_exp(float distance) {
  const uint bits = floatBitsToUint(distance);
  if (bits >= 0x41900000u) return 0;
  const uint exponent = bits >> 23;
  if (exponent < 101) return kOneWeight;
  const uint mantissa = (bits & 0x007FFFFFu) | 0x00800000u;
  const uint fixed_distance =
      exponent >= 124 ? mantissa << (exponent - 124) : mantissa >> (124 - exponent);

  const uvec2 product = multiply64(fixed_distance, 0xB8AA3B29u);
  const uint power = (product.y << 1) | (product.x >> 31);
  const uint whole = power >> 26;
  if (whole >= 25) return 0;

  const uint f = power << 6;
  uint value = 0x0003C405u;
  value = 0x002A5309u - multiply64(value, f).y;
  value = 0x013A79C4u - multiply64(value, f).y;
  value = 0x071A9948u - multiply64(value, f).y;
  value = 0x1EBFBA83u - multiply64(value, f).y;
  value = 0x58B90BF0u - multiply64(value, f).y;
  value = 0x80000000u - multiply64(value, f).y;
  return (value + (1u << (6 + whole))) >> (7 + whole);
}

uvec2 scale_floor(uint fraction, uvec2 total) {
  return add64(multiply64(fraction, total.y), uvec2(multiply64(fraction, total.x).y, 0));
}
uvec2 scale_ceil(uint fraction, uvec2 total) {
  const uint rest = fraction * total.x;
  return add64(scale_floor(fraction, total), uvec2(uint(rest != 0), 0));
}

/// The first word of Philox4x32-10.
uint philox(uvec4 counter, uvec2 key) {
  [[dont_unroll]] for (int round = 0; round < 10; ++round) {
    const uvec2 even = multiply64(0xD2511F53u, counter.x);
    const uvec2 odd = multiply64(0xCD9E8D57u, counter.z);
    counter = uvec4(odd.y ^ counter.y ^ key.x, odd.x, even.y ^ counter.w ^ key.y, even.x);
    key += uvec2(0x9E3779B9u, 0xBB67AE85u);
  }
  return counter.x;
}

#endif
