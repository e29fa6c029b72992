// Reading weights in the resident layout. Compile with exactly one -DWEIGHT_<type>=1; the same names then
// mean that type's tile.
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
// A type is described once, in shaders/weights, from which reading blocks, bytes and elements is derived:
//
//   WEIGHT_FLOATS        defined where words hold kWordWeights floats, which weights_of_word gives; else
//   WEIGHT_OFFSETS       defined where codes are not negative and have an offset: the middle one of them
//   kHalfScales          each half of a block has a scale (and offset) of its own; else both are the same
//   kSignedCodes         codes are signed bytes
//   read_weight_header   what is decoded once a tile: t.header, t.scale
//   read_weight_scales   scale and offset of both halves of a block
//   open_weight_block    what a block's codes are made of, loaded
//   weight_codes         the codes of values 16h + 4k … 16h + 4k + 3 as the bytes of a word
//
// A type may also have, where a code alone is cheaper than out of a word of four,
//
//   WEIGHT_SINGLE_CODES  defined; then
//   single_code          code 16h + 4k + i divided by kSingleCodes
//
// A weight is scale * code + offset. Codes hold values as far up as suits extracting them (Q4_0's times
// 16), with scales divided by as much: any int8 but no intermediate below -128.
//
// Types with a grid (weight_grid.glsl) need use_weight_grid(its address) before anything is read.
//
// Values are bit-equal to pumice::dequantize: `precise` forbids contraction, and products written as
// fma are exact before the addition. Half scales are converted with integers, since drivers may flush
// half subnormals, which scales of small weights are. (Scales must be finite.)
#ifndef PUMICE_SHADERS_COMMON_WEIGHTS_GLSL
#define PUMICE_SHADERS_COMMON_WEIGHTS_GLSL

#if defined(WEIGHT_F32)
#include "weights/f32.glsl"
#elif defined(WEIGHT_F16)
#include "weights/f16.glsl"
#elif defined(WEIGHT_BF16)
#include "weights/bf16.glsl"
#elif defined(WEIGHT_Q8_0)
#include "weights/q8_0.glsl"
#elif defined(WEIGHT_Q4_0)
#include "weights/q4_0.glsl"
#elif defined(WEIGHT_Q4_1)
#include "weights/q4_1.glsl"
#elif defined(WEIGHT_Q5_0)
#include "weights/q5_0.glsl"
#elif defined(WEIGHT_Q5_1)
#include "weights/q5_1.glsl"
#elif defined(WEIGHT_IQ4_NL)
#include "weights/iq4_nl.glsl"
#elif defined(WEIGHT_Q2_K)
#include "weights/q2_k.glsl"
#elif defined(WEIGHT_Q3_K)
#include "weights/q3_k.glsl"
#elif defined(WEIGHT_Q4_K)
#include "weights/q4_k.glsl"
#elif defined(WEIGHT_Q5_K)
#include "weights/q5_k.glsl"
#elif defined(WEIGHT_Q6_K)
#include "weights/q6_k.glsl"
#elif defined(WEIGHT_IQ4_XS)
#include "weights/iq4_xs.glsl"
#elif defined(WEIGHT_MXFP4)
#include "weights/mxfp4.glsl"
#elif defined(WEIGHT_TQ2_0)
#include "weights/tq2_0.glsl"
#elif defined(WEIGHT_IQ1_S)
#include "weights/iq1_s.glsl"
#elif defined(WEIGHT_IQ1_M)
#include "weights/iq1_m.glsl"
#elif defined(WEIGHT_IQ2_XXS)
#include "weights/iq2_xxs.glsl"
#elif defined(WEIGHT_IQ2_XS)
#include "weights/iq2_xs.glsl"
#elif defined(WEIGHT_IQ2_S)
#include "weights/iq2_s.glsl"
#elif defined(WEIGHT_IQ3_XXS)
#include "weights/iq3_xxs.glsl"
#elif defined(WEIGHT_IQ3_S)
#include "weights/iq3_s.glsl"
#else
#error "compile with -DWEIGHT_<type>=1"
#endif

void use_weight_grid(uvec2 grid) {
#ifdef WEIGHT_GRID
  weight_grid = grid;
#endif
}

#ifdef WEIGHT_FLOATS
void read_weight_header(inout WeightTile t) {}
#endif

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
  t.header = uvec4(0);
  t.scale = vec2(0);
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
  t.header = uvec4(0);
  t.scale = vec2(0);
  read_weight_header(t);
  return t;
}

#ifdef WEIGHT_LANES
/// A tile of each lane's row: from row `first` of group `group` of 32 on, one a lane. The arguments are uniform.
WeightTile open_lanes_tile(uvec2 base, uint n_col_tiles, uint group, uint first, uint tile) {
  WeightTile t;
  const uint start = (group * n_col_tiles + tile) * kTileStride;
  t.base = base;
  t.unit = start + first + gl_SubgroupInvocationID;
  t.word = (start + kTileUnits * 32) * 4 + first + gl_SubgroupInvocationID;
  t.first_unit = pack64(base) + uint64_t(start) * 16 + first * 16;
  t.first_word = pack64(base) + uint64_t(start) * 16 + kTileUnits * (32 * 16) + first * 4;
  t.header = uvec4(0);
  t.scale = vec2(0);
  read_weight_header(t);
  return t;
}
#endif

#endif

#ifdef WEIGHT_FLOATS

void read_weight_block(WeightTile t, uint block, out float w[32]) {
  const int kUnitWeights = 4 * int(kWordWeights);
  [[unroll]] for (int u = 0; u < 32 / kUnitWeights; ++u) {
    const WeightUnit unit = weight_unit(t, u);
    [[unroll]] for (int k = 0; k < 4; ++k) {
      const vec2 values = weights_of_word(unit_word(unit, k));
      [[unroll]] for (int i = 0; i < kWordWeights; ++i) {
        w[kUnitWeights * u + int(kWordWeights) * k + i] = values[i];
      }
    }
  }
}

#else

#ifdef WEIGHT_OFFSETS
const bool kOffsets = true;
const uint kMiddleCode = WEIGHT_OFFSETS;
#else
const bool kOffsets = false;
const uint kMiddleCode = 0;
#endif

/// Code `i` of a word of four.
float weight_code(uint codes, int i) {
  return kSignedCodes ? signed_byte(codes, i) : unsigned_byte(codes, i);
}

/// The weight of a code.
float scaled_code(float code, float scale, float offset) {
  precise float value = kOffsets ? fma(code, scale, offset) : code * scale;
  return value;
}

void read_weight_block(WeightTile t, uint block, out float w[32]) {
  vec2 scale, offset;
  read_weight_scales(t, block, scale, offset);
  const WeightBlock b = open_weight_block(t, block);
  [[unroll]] for (int h = 0; h < 2; ++h) {
    [[unroll]] for (int k = 0; k < 4; ++k) {
#ifdef WEIGHT_SINGLE_CODES
      [[unroll]] for (int i = 0; i < 4; ++i) {
        const float code = float(single_code(b, h, k, i));
        w[16 * h + 4 * k + i] = scaled_code(code, scale[h] * kSingleCodes, offset[h]);
      }
#else
      const uint codes = weight_codes(b, h, k);
      [[unroll]] for (int i = 0; i < 4; ++i) {
        w[16 * h + 4 * k + i] = scaled_code(weight_code(codes, i), scale[h], offset[h]);
      }
#endif
    }
  }
}

#endif

#ifndef WEIGHT_TILE_LOADED
void load_weights32(uvec2 base, uint n_col_tiles, uint row, uint block, out float w[32]) {
  const WeightTile t = open_weight_tile(base, n_col_tiles, row, block / kTileBlocks);
  read_weight_block(t, block % kTileBlocks, w);
}
#endif

#endif
