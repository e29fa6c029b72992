// Tiles of the resident layout (format/resident_layout.hpp says what is where) and the fields that types
// are made of. Included by each file of shaders/weights once the tile's shape is known:
//
//   const uint kTileCols, kTileUnits, kTileWords;
//
// Units are read whole, 16 bytes at a time, and kept in registers. What reads single weights (WEIGHT_ELEMENTS)
// must not: there a WeightUnit is where the unit lies, and unit_word loads the one word that is wanted.
//
// With WEIGHT_TILE_LOADED a tile is loaded as a whole, so that its loads are in flight together, and
// blocks must be constants after unrolling. load_weight_tile then takes the place of open_weight_tile.
//
// With X_BROADCAST and its constant wide_loads units are read as 64-bit integers (which the device
// must have): older lavapipe loads one component at a time, so that halves the loads.
//
// With WEIGHT_LANES a tile is that of as many neighbouring rows as a subgroup has lanes, and open_lanes_tile takes the
// place of open_weight_tile. With uniform_loads, a constant of the kernel's, what lanes read is loaded lane by lane
// from addresses that all of them share: lavapipe 26 makes those scalar loads. Of lanes' own addresses it makes
// gathers, which LLVM takes apart into a test and a jump a lane for processors whose gathers it does not trust.
#ifndef PUMICE_SHADERS_COMMON_WEIGHT_TILE_GLSL
#define PUMICE_SHADERS_COMMON_WEIGHT_TILE_GLSL

#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_EXT_control_flow_attributes : require

const uint kTileBlocks = kTileCols / 32;
const uint kTileStride = kTileUnits * 32 + kTileWords * 8;  // of a tile, in units of 16 bytes

layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer WeightUnits {
  uvec4 at[];
};
#if defined(WEIGHT_LANES) || defined(X_BROADCAST)
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#endif
#ifdef X_BROADCAST
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
#ifdef WEIGHT_LANES
  uint64_t first_unit;  // address of unit 0 of the first lane's row
  uint64_t first_word;  // and of its word 0
#endif
  uvec2 base;
  uint unit;  // index of the row's unit 0, in units
  uint word;  // index of the row's word 0, in words
#endif
  uvec4 header;  // the unit of scales, of types that have one
  vec2 scale;    // what read_weight_header puts there, of types with tiles of several blocks
};

#ifdef WEIGHT_ELEMENTS

struct WeightUnit {
  uvec2 base;
  uint first;  // word of the unit
};

WeightUnit weight_unit(WeightTile t, uint unit) {
  return WeightUnit(t.base, (t.unit + unit * 32) * 4);
}
uint unit_word(WeightUnit unit, uint k) { return WeightWords(unit.base).at[unit.first + k]; }

#else

#define WeightUnit uvec4

uint unit_word(uvec4 unit, uint k) { return unit[k]; }

#ifdef WEIGHT_LANES

layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer LaneWords {
  uint at[];
};

/// A word of each lane, `stride` words after that of the lane before. The address is uniform.
uint lanes_word(uint64_t address, uint stride) {
  uint value = LaneWords(address).at[0];
  [[unroll]] for (uint lane = 1; lane < subgroup_size; ++lane) {
    const uint other = LaneWords(address).at[stride * lane];
    value = gl_SubgroupInvocationID == lane ? other : value;
  }
  return value;
}

layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer LanePairs {
  uint64_t at[];
};

/// The same of two words at a time, by half as many loads.
uvec2 lanes_pair(uint64_t address, uint stride) {
  uint64_t value = LanePairs(address).at[0];
  [[unroll]] for (uint lane = 1; lane < subgroup_size; ++lane) {
    const uint64_t other = LanePairs(address).at[stride * lane];
    value = gl_SubgroupInvocationID == lane ? other : value;
  }
  return unpack32(value);
}

#endif

uvec4 weight_unit(WeightTile t, uint unit) {
#ifdef WEIGHT_TILE_LOADED
  return t.units[unit];
#else
#ifdef WEIGHT_LANES
  if (uniform_loads != 0) {
    const uint64_t first = t.first_unit + unit * (32 * 16);
    return uvec4(lanes_pair(first, 2), lanes_pair(first + 8, 2));
  }
#endif
#ifdef X_BROADCAST
  if (wide_loads != 0) {
    const u64vec2 pair = WideWeightUnits(t.base).at[t.unit + unit * 32];
    return uvec4(unpack32(pair.x), unpack32(pair.y));
  }
#endif
  return WeightUnits(t.base).at[t.unit + unit * 32];
#endif
}

#endif

/// All of a unit, in registers.
uvec4 whole_unit(WeightUnit unit) {
#ifdef WEIGHT_ELEMENTS
  return uvec4(unit_word(unit, 0), unit_word(unit, 1), unit_word(unit, 2), unit_word(unit, 3));
#else
  return unit;
#endif
}

uint weight_word(WeightTile t, uint word) {
#ifdef WEIGHT_TILE_LOADED
  return t.words[word];
#else
#ifdef WEIGHT_LANES
  if (uniform_loads != 0) return lanes_word(t.first_word + word * (32 * 4), 1);
#endif
  return WeightWords(t.base).at[t.word + word * 32];
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

vec2 exact_halves(uint bits) { return vec2(exact_half(bits), exact_half(bits >> 16)); }

/// Byte `index` of a word as a number.
float signed_byte(uint word, int index) { return float(bitfieldExtract(int(word), 8 * index, 8)); }
float unsigned_byte(uint word, int index) { return float(bitfieldExtract(word, 8 * index, 8)); }

/// `word` shifted left, or right where `n` is negative; constant after unrolling where speed matters.
uint shifted(uint word, int n) { return n >= 0 ? word << max(n, 0) : word >> max(-n, 0); }

/// Values 4k … 4k + 3 of half `h` of a block as bytes: of word k of a unit of nibbles, with their lowest
/// bit at bit `to`.
uint nibble_bytes(uint nibbles, int h, int to) {
  return shifted(nibbles, to - 4 * h) & (0x0F0F0F0Fu << to);
}
/// The same of a word of pairs and of a word of high bits.
uint pair_bytes(uint pairs, int k, int to) {
  return shifted(pairs, to - 2 * k) & (0x03030303u << to);
}
uint high_bit_bytes(uint bits, int h, int k, int to) {
  return shifted(bits, to - k - 4 * h) & (0x01010101u << to);
}
/// Bits of sub-block `block` where a unit's word holds 16 for each of two.
uint half_word(uvec4 unit, uint block) { return unit[block >> 1] >> ((block & 1u) != 0 ? 16 : 0); }

#endif
