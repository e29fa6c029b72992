#version 460
#extension GL_KHR_shader_subgroup_basic : require

#define WEIGHT_TILE_LOADED 1
#include "common/weights.glsl"
#include "common/buffers.glsl"
#include "gemv/gemv_subgroup.h"
#ifdef X_PLANES
#extension GL_EXT_integer_dot_product : require
#elif defined(WEIGHT_OFFSETS)
#extension GL_KHR_shader_subgroup_ballot : require
#extension GL_KHR_shader_subgroup_shuffle : require
#endif

// For GPUs, where a subgroup's size can be required and its slice of K is then the same for all its
// lanes: what is read of x has a uniform address, which compilers turn into scalar loads. A lane
// owns a column of y; a step takes a whole tile of weights, whose loads are all issued before the
// first is used, and multiplies bytes as they are, sums of blocks with the scale.
// The 32 columns of a workgroup are one subgroup of 32, two of 16 or four of 8. Slices take turns at
// the tiles; their sums are added in order at the end. Lanes past the last column multiply zeros.
// Of gates and ups, half of the slices have the one matrix and half the other.
// Where columns are few, several workgroups share theirs (the grid's y): each writes rows of its own
// sums, which gemv_reduce adds. Neighbouring tiles go to different workgroups, so that all have some.

const uint kBlock = 32;
const uint kSliceLanes = 32;
const uint kSlices = workgroup_size / kSliceLanes;
const uint kSliceSubgroups = kSliceLanes / subgroup_size;

/// A block of a row of x: constant offsets from one address.
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer XBlock { vec4 q[8]; };
/// A view that is only read is cached by Mesa's driver for NVIDIA.
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer XQuads { vec4 v[]; };

const uint kGroupCols = kSliceLanes;
#include "gemv/gemv_finish.glsl"

float acc[tile_rows];

// More than half of a tile's rows are rows of x; the others repeat the last one.
const bool kFullTile = tile_rows <= 2;

uint row_of_x(uint row) { return kFullTile ? row : min(row, pc.rows - 1); }

/// Where a block of a row begins, the same for all lanes.
XBlock x_block(uint row, uint block) {
  return XBlock(address_add(pc.x, (row_of_x(row) * pc.x_stride + block * kBlock) * 4));
}

// Sums alternate, since an addition waits for the one before: of many rows too, whose bits are those of
// a row alone.
const uint kChains = 2;

float sum_of(float chains[kChains]) { return chains[0] + chains[1]; }

#ifdef X_PLANES

#include "gemv/gemv_planes.glsl"

#elif !defined(WEIGHT_FLOATS)

#ifdef WEIGHT_OFFSETS

// Sums of x over the columns of an offset: every lane adds a few columns, and lanes exchange.
const uint kPartQuads = kHalfScales ? 4 : 8;
const uint kTileQuads = kTileCols / 4;
const uint kSumLoads = (kTileQuads + subgroup_size - 1) / subgroup_size;

void sum_x(uint row, uint tile, out float sums[kSumLoads]) {
  const uint first = row_of_x(row) * (pc.x_stride / 4);
  [[unroll]] for (uint i = 0; i < kSumLoads; ++i) {
    const uint quad = tile * kTileQuads + i * subgroup_size + gl_SubgroupInvocationID;
    const vec4 x = XQuads(pc.x).v[first + min(quad, pc.k / 4 - 1)];
    float sum = (x.x + x.y) + (x.z + x.w);
    [[unroll]] for (uint d = 1; d < kPartQuads; d *= 2) sum += subgroupShuffleXor(sum, d);
    sums[i] = sum;
  }
}

void add_offsets(WeightTile t, uint tile) {
  float sums[tile_rows][kSumLoads];
  [[unroll]] for (uint r = 0; r < tile_rows; ++r) sum_x(r, tile, sums[r]);
  [[unroll]] for (uint b = 0; b < kTileBlocks; ++b) {
    vec2 scale, offset;
    read_weight_scales(t, b, scale, offset);
    [[unroll]] for (uint h = 0; h < 8 / kPartQuads; ++h) {
      const uint quad = b * kBlock / 4 + h * kPartQuads;
      [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
        const float sum = subgroupBroadcast(sums[r][quad / subgroup_size], quad % subgroup_size);
        acc[r] = fma(offset[h], sum, acc[r]);
      }
    }
  }
}

#endif

#ifdef WEIGHT_NIBBLE_TABLE

// The table of values lies where sums go when it is no longer needed: with 8 rows and 16 slices they
// take all the shared memory that every device has.
void fill_table() {
  if (gl_LocalInvocationIndex < 16) {
    const uint four = kTableBytes[gl_LocalInvocationIndex / 4];
    partial[gl_LocalInvocationIndex] = signed_byte(four, int(gl_LocalInvocationIndex % 4));
  }
  barrier();
}

void read_codes(WeightTile t, uint block, uint h, out float codes[kBlock / 2]) {
  const uvec4 unit = open_weight_block(t, block).unit;
  [[unroll]] for (int i = 0; i < kBlock / 2; ++i) {
    codes[i] = partial[bitfieldExtract(unit[i / 4], int(8 * (i % 4) + 4 * h), 4)];
  }
}

#else

void read_codes(WeightTile t, uint block, uint h, out float codes[kBlock / 2]) {
  const WeightBlock b = open_weight_block(t, block);
  [[unroll]] for (int i = 0; i < kBlock / 2; ++i) {
    codes[i] = weight_code(weight_codes(b, int(h), i / 4), i % 4);
  }
}

#endif

void multiply(WeightTile t, uint tile) {
  const uint last_block = pc.k / kBlock - 1;
  [[unroll]] for (uint b = 0; b < kTileBlocks; ++b) {
    vec2 scale, offset;
    read_weight_scales(t, b, scale, offset);
    // Blocks past the last are of weight zero.
    const uint block = min(tile * kTileBlocks + b, last_block);
    float sums[tile_rows][kChains];
    [[unroll]] for (uint h = 0; h < 2; ++h) {
      float codes[kBlock / 2];
      read_codes(t, b, h, codes);
      [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
        XBlock x = x_block(r, block);
        [[unroll]] for (uint q = 0; q < kBlock / 8; ++q) {
          const vec4 quad = x.q[4 * h + q];  // one load: not every compiler joins components
          [[unroll]] for (uint c = 0; c < 4; ++c) {
            const uint i = 4 * q + c;
            const bool first = (kHalfScales || h == 0) && i < kChains;
            sums[r][i % kChains] = fma(codes[i], quad[c], first ? 0.0 : sums[r][i % kChains]);
          }
        }
        if (kHalfScales || h == 1) acc[r] = fma(scale[h], sum_of(sums[r]), acc[r]);
      }
    }
  }
#ifdef WEIGHT_OFFSETS
  add_offsets(t, tile);
#endif
}

#else

/// A tile is a block. The last one may be cut short: `whole` says that this one is not.
void multiply(WeightTile t, uint block, bool whole) {
  float w[kBlock];
  read_weight_block(t, 0, w);
  [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
    XBlock block_of_x = x_block(r, block);
    const uint row = row_of_x(r) * (pc.x_stride / 4);
    float sums[kChains];
    [[unroll]] for (uint q = 0; q < kBlock / 4; ++q) {
      const vec4 x = whole ? block_of_x.q[q]
                           : XQuads(pc.x).v[row + min(block * (kBlock / 4) + q, pc.k / 4 - 1)];
      [[unroll]] for (uint i = 0; i < 4; ++i) {
        sums[i % kChains] = fma(w[4 * q + i], x[i], q == 0 && i < kChains ? 0.0 : sums[i % kChains]);
      }
    }
    acc[r] += sum_of(sums);
  }
}

#endif

void main() {
  use_weight_grid(pc.grid);
  const uint slice = gl_SubgroupID / kSliceSubgroups;
  const uint lane = gl_SubgroupID % kSliceSubgroups * subgroup_size + gl_SubgroupInvocationID;
  const bool is_up = is_to(GEMV_GATED) && slice >= n_slices();
  const uint group = gl_WorkGroupID.x;
  const uvec2 weights = address_add(pc.weights, is_up ? pc.ups : 0);

  [[unroll]] for (uint r = 0; r < tile_rows; ++r) acc[r] = 0.0;
  uint tile = (slice - (is_up ? n_slices() : 0)) * pc.splits + gl_WorkGroupID.y;
#ifndef WEIGHT_FLOATS
#ifdef WEIGHT_NIBBLE_TABLE
  fill_table();
#endif
  for (; tile < pc.n_col_tiles; tile += pc.tile_stride) {
    multiply(load_weight_tile(weights, pc.n_col_tiles, group, lane, tile), tile);
  }
#ifdef WEIGHT_NIBBLE_TABLE
  barrier();
#endif
#else
  const uint n_whole = pc.k / kBlock;
  for (; tile < n_whole; tile += pc.tile_stride) {
    multiply(load_weight_tile(weights, pc.n_col_tiles, group, lane, tile), tile, true);
  }
  if (tile == n_whole && n_whole < pc.n_col_tiles) {
    multiply(load_weight_tile(weights, pc.n_col_tiles, group, lane, n_whole), n_whole, false);
  }
#endif

  [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
    partial[(slice * tile_rows + r) * kSliceLanes + lane] = acc[r];
  }
  // `tile` kept its remainder; a variable of its own would take a register through the loop.
  finish(slice * kSliceLanes + lane, gl_WorkGroupID.x, tile & (pc.splits - 1));
}
