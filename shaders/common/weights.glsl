// Reading weights in the resident layout (format/resident_layout.hpp says what is where). Compile
// with exactly one -DWEIGHT_<type>=1; the same names then mean that type's tile.
//
//   float w[32];
//   load_weights32(base, n_col_tiles, row, block, w);
//
// gives columns [32 * block, 32 * block + 32) of a row. `base` is the address of row 0 of a slab
// (below 16 GiB), n_col_tiles = ceil(n_cols / kTileCols). Rows up to the next multiple of 32 and
// columns up to the next multiple of kTileCols may be read and are zero weights. A loop over a tile's
// blocks can open the tile once and so decode its header once:
//
//   WeightTile t = open_weight_tile(base, n_col_tiles, row, tile);
//   for (uint b = 0; b < kTileBlocks; ++b) { read_weight_block(t, b, w); … }
//
// With WEIGHT_TILE_LOADED a tile is loaded as a whole, so that its loads are in flight together, and
// blocks must be constants after unrolling. load_weight_tile then takes the place of open_weight_tile.
//
// With X_BROADCAST and its constant wide_loads units are read as 64-bit integers (which the device
// must have): older lavapipe loads one component at a time, so that halves the loads.
//
// Values are bit-equal to pumice::dequantize: `precise` forbids contraction, and products written as
// fma are exact before the addition. Half scales are converted with integers, since drivers may flush
// half subnormals, which scales of small weights are. (Scales must be finite.) F16 weights
// themselves go through unpackHalf2x16: one instruction, exact wherever halves are not flushed.
#ifndef PUMICE_SHADERS_COMMON_WEIGHTS_GLSL
#define PUMICE_SHADERS_COMMON_WEIGHTS_GLSL

#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_EXT_control_flow_attributes : require

#if defined(WEIGHT_F32)
const uint kTileCols = 32, kTileUnits = 8, kTileWords = 0;
#elif defined(WEIGHT_F16) || defined(WEIGHT_BF16)
const uint kTileCols = 32, kTileUnits = 4, kTileWords = 0;
#elif defined(WEIGHT_Q8_0)
const uint kTileCols = 64, kTileUnits = 4, kTileWords = 1;
#elif defined(WEIGHT_Q4_0) || defined(WEIGHT_IQ4_NL)
const uint kTileCols = 64, kTileUnits = 2, kTileWords = 1;
#elif defined(WEIGHT_Q4_1)
const uint kTileCols = 64, kTileUnits = 2, kTileWords = 2;
#elif defined(WEIGHT_Q5_0)
const uint kTileCols = 64, kTileUnits = 2, kTileWords = 3;
#elif defined(WEIGHT_Q5_1)
const uint kTileCols = 64, kTileUnits = 2, kTileWords = 4;
#elif defined(WEIGHT_Q2_K)
const uint kTileCols = 256, kTileUnits = 5, kTileWords = 1;
#elif defined(WEIGHT_Q3_K)
const uint kTileCols = 256, kTileUnits = 7, kTileWords = 1;
#elif defined(WEIGHT_Q4_K)
const uint kTileCols = 256, kTileUnits = 9, kTileWords = 0;
#elif defined(WEIGHT_Q5_K)
const uint kTileCols = 256, kTileUnits = 11, kTileWords = 0;
#elif defined(WEIGHT_Q6_K)
const uint kTileCols = 256, kTileUnits = 13, kTileWords = 1;
#else
#error "compile with -DWEIGHT_<type>=1"
#endif

const uint kTileBlocks = kTileCols / 32;
const uint kTileStride = kTileUnits * 32 + kTileWords * 8;  // of a tile, in units of 16 bytes

layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer WeightUnits {
  uvec4 at[];
};
#ifdef X_BROADCAST
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#include "common/x_broadcast.h"
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer WideWeightUnits {
  u64vec2 at[];
};
#endif
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer WeightWords {
  uint at[];
};

/// One row of one tile.
struct WeightTile {
#ifdef WEIGHT_TILE_LOADED
  uvec4 units[kTileUnits];
  uint words[kTileWords + 1];  // GLSL has no empty arrays
#else
  uvec2 base;
  uint unit;  // index of the row's unit 0, in units
  uint word;  // index of the row's word 0, in words
#endif
  uvec4 header;  // the unit of scales, of types that have one
  vec2 scale;    // the halves of word 0 or of K scales
};

#ifdef WEIGHT_TILE_LOADED

uvec4 weight_unit(WeightTile t, uint unit) { return t.units[unit]; }
uint weight_word(WeightTile t, uint word) { return t.words[word]; }

#else

uvec4 weight_unit(WeightTile t, uint unit) {
#ifdef X_BROADCAST
  if (wide_loads != 0) {
    const u64vec2 pair = WideWeightUnits(t.base).at[t.unit + unit * 32];
    return uvec4(unpack32(pair.x), unpack32(pair.y));
  }
#endif
  return WeightUnits(t.base).at[t.unit + unit * 32];
}

uint weight_word(WeightTile t, uint word) { return WeightWords(t.base).at[t.word + word * 32]; }

#endif

#if defined(WEIGHT_IQ4_NL)
/// The table as bytes of four words: an array indexed by data would live in memory.
const uvec4 kTableBytes = uvec4(0xBFAD9881u, 0xF6EADDCFu, 0x26190D01u, 0x71594535u);
#endif

/// Half of the low 16 bits, exact for subnormals on every driver; not for infinity and NaN.
float exact_half(uint bits) {
  const uint exponent = bits & 0x7C00u;
  const float normal = uintBitsToFloat(((bits & 0x7FFFu) << 13) + 0x38000000u);
  const float small = float(bits & 0x3FFu) * 5.9604644775390625e-8;  // 2^-24
  const uint magnitude = floatBitsToUint(exponent != 0 ? normal : small);
  return uintBitsToFloat(magnitude | ((bits & 0x8000u) << 16));
}

vec2 exact_halves(uint bits) { return vec2(exact_half(bits), exact_half(bits >> 16)); }

float signed_byte(uint word, int index) { return float(bitfieldExtract(int(word), 8 * index, 8)); }

/// Value `i` of a unit of nibbles.
uint nibble(uvec4 unit, int i) {
  return bitfieldExtract(unit[i % 16 / 4], 8 * (i % 4) + 4 * (i / 16), 4);
}

/// `word` shifted left, or right where `n` is negative; n must be constant after unrolling.
uint shifted(uint word, int n) { return n >= 0 ? word << max(n, 0) : word >> max(-n, 0); }

/// Values 4k … 4k + 3 of a half block as bytes: nibbles with their lowest bit at bit `to`.
uint nibble_bytes(uvec4 unit, int half_block, int k, int to) {
  return shifted(unit[k], to - 4 * half_block) & (0x0F0F0F0Fu << to);
}
/// The same of a word of pairs and of a word of high bits.
uint pair_bytes(uint pairs, int k, int to) {
  return shifted(pairs, to - 2 * k) & (0x03030303u << to);
}
uint high_bit_bytes(uint bits, int half_block, int k, int to) {
  return shifted(bits, to - k - 4 * half_block) & (0x01010101u << to);
}

/// Read a tile's header and scales.
void read_weight_header(inout WeightTile t) {
  t.header = uvec4(0);
  t.scale = vec2(0);
#if defined(WEIGHT_Q4_K) || defined(WEIGHT_Q5_K)
  t.header = weight_unit(t, 0);
  t.scale = exact_halves(t.header.x);
#elif defined(WEIGHT_Q2_K) || defined(WEIGHT_Q3_K) || defined(WEIGHT_Q6_K)
#if defined(WEIGHT_Q6_K)
  t.header = weight_unit(t, 12);
#else
  t.header = weight_unit(t, 0);
#endif
  t.scale = exact_halves(weight_word(t, 0));
#elif defined(WEIGHT_Q8_0) || defined(WEIGHT_Q4_0) || defined(WEIGHT_IQ4_NL) || defined(WEIGHT_Q5_0)
  t.scale = exact_halves(weight_word(t, 0));
#endif
}

#ifdef WEIGHT_TILE_LOADED

layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer WholeTile {
  uvec4 units[kTileUnits][32];
  uint words[][32];
};

/// The row `lane` of 32. Where the group of rows is uniform, so is all of the address but the lane.
WeightTile load_weight_tile(uvec2 base, uint n_col_tiles, uint group, uint lane, uint tile) {
  const uint start = (group * n_col_tiles + tile) * kTileStride;
  const uint low = base.x + (start << 4);
  WholeTile whole = WholeTile(uvec2(low, base.y + (start >> 28) + uint(low < base.x)));
  WeightTile t;
  [[unroll]] for (uint i = 0; i < kTileUnits; ++i) t.units[i] = whole.units[i][lane];
  [[unroll]] for (uint i = 0; i < kTileWords; ++i) t.words[i] = whole.words[i][lane];
  read_weight_header(t);
  return t;
}

#else

WeightTile open_weight_tile(uvec2 base, uint n_col_tiles, uint row, uint tile) {
  WeightTile t;
  t.base = base;
  const uint lane = row & 31u;
  const uint start = ((row >> 5) * n_col_tiles + tile) * kTileStride;
  t.unit = start + lane;
  t.word = (start + kTileUnits * 32) * 4 + lane;
  read_weight_header(t);
  return t;
}

#endif

#if defined(WEIGHT_Q4_K) || defined(WEIGHT_Q5_K)
/// Scale and minimum of a sub-block.
vec2 k_scales(WeightTile t, uint block) {
  const uvec4 fields = t.header >> (4 * block);
  return t.scale * vec2(float((fields.y & 15u) | ((fields.w & 3u) << 4)),
                        float((fields.z & 15u) | ((fields.w & 12u) << 2)));
}
#endif

void read_weight_block(WeightTile t, uint block, out float w[32]) {
#if defined(WEIGHT_F32)
  [[unroll]] for (int u = 0; u < 8; ++u) {
    const uvec4 unit = weight_unit(t, u);
    [[unroll]] for (int k = 0; k < 4; ++k) w[4 * u + k] = uintBitsToFloat(unit[k]);
  }

#elif defined(WEIGHT_F16)
  [[unroll]] for (int u = 0; u < 4; ++u) {
    const uvec4 unit = weight_unit(t, u);
    [[unroll]] for (int k = 0; k < 4; ++k) {
      const vec2 pair = unpackHalf2x16(unit[k]);
      w[8 * u + 2 * k] = pair.x;
      w[8 * u + 2 * k + 1] = pair.y;
    }
  }

#elif defined(WEIGHT_BF16)
  [[unroll]] for (int u = 0; u < 4; ++u) {
    const uvec4 unit = weight_unit(t, u);
    [[unroll]] for (int k = 0; k < 4; ++k) {
      w[8 * u + 2 * k] = uintBitsToFloat(unit[k] << 16);
      w[8 * u + 2 * k + 1] = uintBitsToFloat(unit[k] & 0xFFFF0000u);
    }
  }

#elif defined(WEIGHT_Q8_0)
  const float d = block == 0 ? t.scale.x : t.scale.y;
  [[unroll]] for (int u = 0; u < 2; ++u) {
    const uvec4 unit = weight_unit(t, 2 * block + u);
    [[unroll]] for (int i = 0; i < 16; ++i) {
      precise float value = signed_byte(unit[i / 4], i % 4) * d;
      w[16 * u + i] = value;
    }
  }

#elif defined(WEIGHT_Q4_0)
  const float d = block == 0 ? t.scale.x : t.scale.y;
  const uvec4 unit = weight_unit(t, block);
  [[unroll]] for (int i = 0; i < 32; ++i) {
    const int value4 = bitfieldExtract(int(unit[i % 16 / 4]), 8 * (i % 4) + 4 * (i / 16), 4);
    precise float value = float(value4) * d;
    w[i] = value;
  }

#elif defined(WEIGHT_IQ4_NL)
  const float d = block == 0 ? t.scale.x : t.scale.y;
  const uvec4 unit = weight_unit(t, block);
  [[unroll]] for (int i = 0; i < 32; ++i) {
    const uint index = nibble(unit, i);
    const uint low = (index & 4u) != 0 ? kTableBytes.y : kTableBytes.x;
    const uint high = (index & 4u) != 0 ? kTableBytes.w : kTableBytes.z;
    const int four = int((index & 8u) != 0 ? high : low);
    precise float value = float(bitfieldExtract(four, int(index & 3u) * 8, 8)) * d;
    w[i] = value;
  }

#elif defined(WEIGHT_Q4_1)
  const vec2 scale = exact_halves(weight_word(t, block));
  const uvec4 unit = weight_unit(t, block);
  [[unroll]] for (int i = 0; i < 32; ++i) {
    precise float value = fma(float(nibble(unit, i)), scale.x, scale.y);
    w[i] = value;
  }

#elif defined(WEIGHT_Q5_0)
  const float d = (block == 0 ? t.scale.x : t.scale.y) * 0.125;  // values come out times eight
  const uvec4 unit = weight_unit(t, block);
  const uint high = weight_word(t, 1 + block);
  [[unroll]] for (int h = 0; h < 2; ++h) {
    [[unroll]] for (int k = 0; k < 4; ++k) {
      const uint word = nibble_bytes(unit, h, k, 3) | high_bit_bytes(high, h, k, 7);
      [[unroll]] for (int i = 0; i < 4; ++i) {
        precise float value = signed_byte(word, i) * d;
        w[16 * h + 4 * k + i] = value;
      }
    }
  }

#elif defined(WEIGHT_Q5_1)
  const vec2 scale = exact_halves(weight_word(t, block));
  const uvec4 unit = weight_unit(t, block);
  const uint high = weight_word(t, 2 + block);
  [[unroll]] for (int h = 0; h < 2; ++h) {
    [[unroll]] for (int k = 0; k < 4; ++k) {
      const uint word = nibble_bytes(unit, h, k, 0) | high_bit_bytes(high, h, k, 4);
      [[unroll]] for (int i = 0; i < 4; ++i) {
        precise float value = fma(float(bitfieldExtract(word, 8 * i, 8)), scale.x, scale.y);
        w[16 * h + 4 * k + i] = value;
      }
    }
  }

#elif defined(WEIGHT_Q2_K)
  const uvec4 unit = weight_unit(t, 1 + (block >> 1));
  const bool odd = (block & 1u) != 0;
  const uint scales = t.header[block >> 1] >> (odd ? 16 : 0);
  [[unroll]] for (int h = 0; h < 2; ++h) {
    const float scale = t.scale.x * float(bitfieldExtract(scales, 8 * h, 4));
    const float minimum = t.scale.y * float(bitfieldExtract(scales, 8 * h + 4, 4));
    const uint pairs = odd ? unit[2 + h] : unit[h];
    [[unroll]] for (int i = 0; i < 16; ++i) {
      const uint pair = bitfieldExtract(pairs, 8 * (i % 4) + 2 * (i / 4), 2);
      precise float value = fma(scale, float(pair), -minimum);
      w[16 * h + i] = value;
    }
  }

#elif defined(WEIGHT_Q3_K)
  const uvec4 unit = weight_unit(t, 1 + (block >> 1));
  const uint high = weight_unit(t, 5 + (block >> 2))[block & 3u];
  const bool odd = (block & 1u) != 0;
  const uint scales = t.header[block >> 1] >> (odd ? 16 : 0);
  [[unroll]] for (int h = 0; h < 2; ++h) {
    const float scale = t.scale.x * 0.03125 * signed_byte(scales, h);  // values come out times 32
    const uint pairs = odd ? unit[2 + h] : unit[h];
    [[unroll]] for (int k = 0; k < 4; ++k) {
      const uint word = pair_bytes(pairs, k, 5) | high_bit_bytes(high, h, k, 7);
      [[unroll]] for (int i = 0; i < 4; ++i) {
        precise float value = signed_byte(word, i) * scale;
        w[16 * h + 4 * k + i] = value;
      }
    }
  }

#elif defined(WEIGHT_Q4_K)
  const vec2 scale = k_scales(t, block);
  const uvec4 unit = weight_unit(t, 1 + block);
  [[unroll]] for (int i = 0; i < 32; ++i) {
    precise float value = fma(scale.x, float(nibble(unit, i)), -scale.y);
    w[i] = value;
  }

#elif defined(WEIGHT_Q5_K)
  const vec2 scale = k_scales(t, block);
  const uvec4 unit = weight_unit(t, 1 + block);
  const uint high = weight_unit(t, 9 + (block >> 2))[block & 3u];
  [[unroll]] for (int h = 0; h < 2; ++h) {
    [[unroll]] for (int k = 0; k < 4; ++k) {
      const uint word = nibble_bytes(unit, h, k, 0) | high_bit_bytes(high, h, k, 4);
      [[unroll]] for (int i = 0; i < 4; ++i) {
        precise float value = fma(scale.x, float(bitfieldExtract(word, 8 * i, 8)), -scale.y);
        w[16 * h + 4 * k + i] = value;
      }
    }
  }

#elif defined(WEIGHT_Q6_K)
  const uvec4 unit = weight_unit(t, block);
  const uvec4 high = weight_unit(t, 8 + (block >> 1));
  const bool odd = (block & 1u) != 0;
  const uint scales = t.header[block >> 1] >> (odd ? 16 : 0);
  [[unroll]] for (int h = 0; h < 2; ++h) {
    const float scale = t.scale.x * 0.25 * signed_byte(scales, h);  // values come out times four
    const uint pairs = odd ? high[2 + h] : high[h];
    [[unroll]] for (int k = 0; k < 4; ++k) {
      const uint word = nibble_bytes(unit, h, k, 2) | pair_bytes(pairs, k, 6);
      [[unroll]] for (int i = 0; i < 4; ++i) {
        precise float value = signed_byte(word, i) * scale;
        w[16 * h + 4 * k + i] = value;
      }
    }
  }
#endif
}

#ifndef WEIGHT_TILE_LOADED
void load_weights32(uvec2 base, uint n_col_tiles, uint row, uint block, out float w[32]) {
  const WeightTile t = open_weight_tile(base, n_col_tiles, row, block / kTileBlocks);
  read_weight_block(t, block % kTileBlocks, w);
}
#endif

#endif
