// Halves and bfloat16s in integer arithmetic. packHalf2x16 may round either way (Vulkan leaves it open and
// drivers differ), so what is stored in 16 bits is rounded here, to nearest even.
#ifndef PUMICE_SHADERS_COMMON_HALF_GLSL
#define PUMICE_SHADERS_COMMON_HALF_GLSL

/// The bits of `value` as a half, rounded to nearest even. Finite values beyond the range saturate at
/// +-65504: an infinity in a cache would turn masked positions into NaN.
uint half_bits(float value) {
  const uint bits = floatBitsToUint(value);
  const uint sign = (bits >> 16) & 0x8000u;
  const uint magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return sign | 0x7E00u;
  if (magnitude >= 0x477FE000u) return sign | 0x7BFFu;
  if (magnitude < 0x38800000u) {  // below 2^-14: adding 0.5 aligns the subnormal's last bit
    precise const float shifted = uintBitsToFloat(magnitude) + 0.5;
    return sign | (floatBitsToUint(shifted) - 0x3F000000u);
  }
  return sign | ((magnitude + 0xFFFu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13);
}

uint half2_bits(float low, float high) { return half_bits(low) | (half_bits(high) << 16); }

/// The same as a bfloat16: the upper half of a float's bits, which saturates at the largest of them.
uint bfloat_bits(float value) {
  const uint bits = floatBitsToUint(value);
  const uint sign = (bits >> 16) & 0x8000u;
  const uint magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return sign | 0x7FC0u;
  return sign | min((magnitude + 0x7FFFu + ((magnitude >> 16) & 1u)) >> 16, 0x7F7Fu);
}

uint bfloat2_bits(float low, float high) { return bfloat_bits(low) | (bfloat_bits(high) << 16); }

#endif
