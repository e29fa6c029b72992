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
// With WIDE_LOADS units are read as 64-bit integers (which the device must have): lavapipe loads one
// component at a time, so that halves the loads.
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
#elif defined(WEIGHT_Q4_0)
const uint kTileCols = 64, kTileUnits = 2, kTileWords = 1;
#elif defined(WEIGHT_Q4_K)
const uint kTileCols = 256, kTileUnits = 9, kTileWords = 0;
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
#ifdef WIDE_LOADS
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer WideWeightUnits {
  u64vec2 at[];
};
#endif
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer WeightWords {
  uint at[];
};

/// One row of one tile.
struct WeightTile {
  uvec2 base;
  uint first;    // index of the row's unit 0, in units
  uvec4 header;  // scales, where the type keeps them in one place
  vec2 scale;
};

uvec4 weight_unit(WeightTile t, uint unit) {
#ifdef WIDE_LOADS
  const u64vec2 pair = WideWeightUnits(t.base).at[t.first + unit * 32];
  return uvec4(unpack32(pair.x), unpack32(pair.y));
#else
  return WeightUnits(t.base).at[t.first + unit * 32];
#endif
}

/// Half of the low 16 bits, exact for subnormals on every driver; not for infinity and NaN.
float exact_half(uint bits) {
  const uint exponent = bits & 0x7C00u;
  const float normal = uintBitsToFloat(((bits & 0x7FFFu) << 13) + 0x38000000u);
  const float small = float(bits & 0x3FFu) * 5.9604644775390625e-8;  // 2^-24
  const uint magnitude = floatBitsToUint(exponent != 0 ? normal : small);
  return uintBitsToFloat(magnitude | ((bits & 0x8000u) << 16));
}

float signed_byte(uint word, int index) { return float(bitfieldExtract(int(word), 8 * index, 8)); }

WeightTile open_weight_tile(uvec2 base, uint n_col_tiles, uint row, uint tile) {
  WeightTile t;
  t.base = base;
  const uint lane = row & 31u;
  const uint start = ((row >> 5) * n_col_tiles + tile) * kTileStride;
  t.first = start + lane;
  t.header = uvec4(0);
  t.scale = vec2(0);
#if defined(WEIGHT_Q8_0) || defined(WEIGHT_Q4_0) || defined(WEIGHT_Q6_K)
  const uint word = WeightWords(base).at[(start + kTileUnits * 32) * 4 + lane];
  t.scale = vec2(exact_half(word), exact_half(word >> 16));
#endif
#if defined(WEIGHT_Q4_K)
  t.header = weight_unit(t, 0);
  t.scale = vec2(exact_half(t.header.x), exact_half(t.header.x >> 16));
#elif defined(WEIGHT_Q6_K)
  t.header = weight_unit(t, 12);
#endif
  return t;
}

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
    const int nibble = bitfieldExtract(int(unit[i % 16 / 4]), 8 * (i % 4) + 4 * (i / 16), 4);
    precise float value = float(nibble) * d;
    w[i] = value;
  }

#elif defined(WEIGHT_Q4_K)
  const uint shift = 4 * block;
  const uvec4 fields = t.header >> shift;
  const float scale = t.scale.x * float((fields.y & 15u) | ((fields.w & 3u) << 4));
  const float minimum = t.scale.y * float((fields.z & 15u) | ((fields.w & 12u) << 2));
  const uvec4 unit = weight_unit(t, 1 + block);
  [[unroll]] for (int i = 0; i < 32; ++i) {
    const uint nibble = bitfieldExtract(unit[i % 16 / 4], 8 * (i % 4) + 4 * (i / 16), 4);
    precise float value = fma(scale, float(nibble), -minimum);
    w[i] = value;
  }

#elif defined(WEIGHT_Q6_K)
  const uvec4 unit = weight_unit(t, block);
  const uvec4 pairs = weight_unit(t, 8 + (block >> 1));
  const bool odd = (block & 1u) != 0;
  const uint scales = t.header[block >> 1] >> (odd ? 16 : 0);
  const float quarter_d = t.scale.x * 0.25;  // values come out times four
  [[unroll]] for (int half_block = 0; half_block < 2; ++half_block) {
    const float scale = quarter_d * signed_byte(scales, half_block);
    const uint high = odd ? pairs[2 + half_block] : pairs[half_block];
    [[unroll]] for (int k = 0; k < 4; ++k) {
      const uint low = (half_block == 0 ? unit[k] << 2 : unit[k] >> 2) & 0x3C3C3C3Cu;
      const uint word = low | ((high << (6 - 2 * k)) & 0xC0C0C0C0u);
      [[unroll]] for (int i = 0; i < 4; ++i) {
        precise float value = signed_byte(word, i) * scale;
        w[16 * half_block + 4 * k + i] = value;
      }
    }
  }
#endif
}

void load_weights32(uvec2 base, uint n_col_tiles, uint row, uint block, out float w[32]) {
  const WeightTile t = open_weight_tile(base, n_col_tiles, row, block / kTileBlocks);
  read_weight_block(t, block % kTileBlocks, w);
}

#endif
