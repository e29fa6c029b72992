// Weights as halves, two at a time, for matrix cores. Includes common/weights.glsl.
//
//   HeldWeights held = hold_weights32(base, n_col_tiles, row, tile, block of the tile);
//   uvec4 halves = weight_halves(held, u);
//
// are loads only, whose results stay in registers as they came, and then columns 8u to 8u + 7 of the 32 of
// that block. Every four of them are in the order 0 2 1 3, in which bytes of a word become pairs; what
// they are multiplied with must be in that order too (in_pairs).
//
// A weight is rounded once, and so are its block's scale and offset: they are halves here, the scale times
// 256, so that those of small weights are no subnormals. The offset is that of codes less the middle one, a
// fraction of what it would be and so are the errors of both. What exceeds a half saturates.
#ifndef PUMICE_SHADERS_COMMON_WEIGHTS_HALVES_GLSL
#define PUMICE_SHADERS_COMMON_WEIGHTS_HALVES_GLSL

#include "common/weights.glsl"

const float kLargestHalf = 65504.0;

/// Four values in the order of weight_halves.
uvec2 in_pairs(f16vec4 v) { return uvec2(packFloat2x16(v.xz), packFloat2x16(v.yw)); }

#ifdef WEIGHT_FLOATS

const uint kHeldUnits = 8 / kWordWeights;

struct HeldWeights {
  WeightUnit units[kHeldUnits];
};

HeldWeights hold_weights32(uvec2 base, uint n_col_tiles, uint row, uint tile, uint block) {
  const WeightTile t = open_weight_tile(base, n_col_tiles, row, tile);
  HeldWeights held;
  [[unroll]] for (int u = 0; u < kHeldUnits; ++u) held.units[u] = weight_unit(t, u);
  return held;
}

/// Values 4k … 4k + 3 of the block.
uvec2 quad_of_floats(HeldWeights held, uint k) {
#ifdef WEIGHT_F16
  const uvec4 unit = held.units[k / 2];
  const uint first = unit[2 * (k % 2)];
  const uint second = unit[2 * (k % 2) + 1];
  return uvec2((first & 0xFFFFu) | (second << 16), (first >> 16) | (second & 0xFFFF0000u));
#else
  f16vec4 quad;
  [[unroll]] for (uint i = 0; i < 4; i += kWordWeights) {
    const uint word = (4 * k + i) / kWordWeights;
    const vec2 values = weights_of_word(held.units[word / 4][word % 4]);
    [[unroll]] for (uint j = 0; j < kWordWeights; ++j) {
      quad[i + j] = float16_t(clamp(values[j], -kLargestHalf, kLargestHalf));
    }
  }
  return in_pairs(quad);
#endif
}

uvec4 weight_halves(HeldWeights held, uint u) {
  return uvec4(quad_of_floats(held, 2 * u), quad_of_floats(held, 2 * u + 1));
}

#else

struct HeldWeights {
  WeightTile tile;
  uint index;  // of the block in it
  WeightBlock block;
};

HeldWeights hold_weights32(uvec2 base, uint n_col_tiles, uint row, uint tile, uint block) {
  const WeightTile t = open_weight_tile(base, n_col_tiles, row, tile);
  return HeldWeights(t, block, open_weight_block(t, block));
}

// What is code 0 once 128 has been added to signed ones and the middle one taken off others, in 256th parts.
const float kZero = (kSignedCodes ? 128.0 : float(kMiddleCode)) / 256.0;

/// Two codes divided by 256. As bytes 0 and 2 of a word they are put beneath the exponent of 4, of which
/// the lowest bit is so much.
f16vec2 code_pair(uint codes) {
  return unpackFloat2x16((codes & 0x00FF00FFu) | 0x44004400u) - f16vec2(4.0 + kZero);
}

/// Values 4k … 4k + 3 of half h of a block, in 256th parts.
void quad_of_codes(WeightBlock b, int h, int k, out f16vec2 first, out f16vec2 second) {
#ifdef WEIGHT_NIBBLES
  // High nibbles beneath that of 1/4, where they are as much without being shifted.
  const uint word = unit_word(b.unit, k);
  const uint mask = h == 0 ? 0x000F000Fu : 0x00F000F0u;
  const uint exponent = h == 0 ? 0x44004400u : 0x34003400u;
  const f16vec2 zero = f16vec2((h == 0 ? 4.0 : 0.25) + kZero);
  first = unpackFloat2x16((word & mask) | exponent) - zero;
  second = unpackFloat2x16(((word >> 8) & mask) | exponent) - zero;
#else
  const uint codes = weight_codes(b, h, k) ^ (kSignedCodes ? 0x80808080u : 0u);
  first = code_pair(codes);
  second = code_pair(codes >> 8);
#endif
}

f16vec2 scaled_pair(f16vec2 codes, f16vec2 scale, f16vec2 offset) {
  return kOffsets ? fma(codes, scale, offset) : codes * scale;
}

float16_t saturated_half(float value) {
  return float16_t(clamp(value, -kLargestHalf, kLargestHalf));
}

uvec4 weight_halves(HeldWeights held, uint u) {
  const int h = int(u / 2);
  vec2 scales, offsets;
  read_weight_scales(held.tile, held.index, scales, offsets);
  const f16vec2 scale = f16vec2(saturated_half(scales[h] * 256.0));
  const f16vec2 offset = f16vec2(saturated_half(fma(scales[h], float(kMiddleCode), offsets[h])));
  uvec4 halves;
  [[unroll]] for (int i = 0; i < 2; ++i) {
    f16vec2 first, second;
    quad_of_codes(held.block, h, int(u % 2) * 2 + i, first, second);
    halves[2 * i] = packFloat2x16(scaled_pair(first, scale, offset));
    halves[2 * i + 1] = packFloat2x16(scaled_pair(second, scale, offset));
  }
  return halves;
}

#endif

#endif
