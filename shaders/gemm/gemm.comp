#version 460
#ifdef X_BROADCAST
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
#ifdef X_UNIFORM
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_KHR_shader_subgroup_basic : require
#ifndef EXPERT_PAIRS  // an expert's first row need not be one of a subgroup's first lane
#define WEIGHT_LANES 1
const uint uniform_loads = 1;
#endif
#endif

#include "gemm/gemm.h"
#include "common/weights.glsl"
#include "common/x_quads.glsl"
#include "gemm/gemm_rows.glsl"

// A lane owns lane_cols columns of y: it dequantises 32 weights of each into registers and multiplies
// them with tile_rows rows of x. How x reaches all lanes:
//   X_SHARED     staged in shared memory, double-buffered, [k][row] so that one read gives four rows
//   X_BROADCAST  loaded by the lanes of a subgroup, spread by shuffles from constant lanes; neither
//                shared memory nor barriers, both of which cost CPU drivers more than arithmetic.
//                (subgroupBroadcast is the same on lavapipe 25.0, but 22.3 makes a loop of each.)
//   X_UNIFORM    every lane reads the same address: CPU drivers that see it load once. tile_rows is
//                a multiple of 8. Weights are read so too, but experts'
// Lanes past the last column compute some column or other and store nothing.

const uint kBlock = 32;
const uint kBlockQuads = kBlock / 4;
// Blocks for which a tile's header is decoded once. A loop level costs lavapipe a masked copy of all
// sums (half the speed where a tile is one block), more than decoding a small header twice.
const uint kOpenBlocks = kTileBlocks > 2 ? kTileBlocks : 1;

float acc[lane_cols][tile_rows];

#ifdef X_SHARED

shared vec4 staged[2][kBlock][tile_rows / 4];  // [buffer][k][row / 4]
const uint kQuads = tile_rows * kBlockQuads;
const uint kQuadsPerLane = (kQuads + workgroup_size - 1) / workgroup_size;

vec4 fetched[kQuadsPerLane];

const uint kRowSlots = kQuadsPerLane;
uint quad_of(uint i) { return min(gl_LocalInvocationIndex + i * workgroup_size, kQuads - 1); }
uint row_of_slot(uint i) { return quad_of(i) / kBlockQuads; }
HOLD_X_ROWS(kRowSlots)

void fetch_x(uint block) {
  [[unroll]] for (uint i = 0; i < kQuadsPerLane; ++i) {
    const uint column = min(block * kBlockQuads + quad_of(i) % kBlockQuads, pc.k / 4 - 1);
    fetched[i] = load_quad(pc.x, x_row_of_slot(i) + column);
  }
}

void store_x(uint buffer_index) {
  const uint lane = gl_LocalInvocationIndex;
  [[unroll]] for (uint i = 0; i < kQuadsPerLane; ++i) {
    const uint quad = lane + i * workgroup_size;
    if (quad < kQuads) {
      const uint row = quad / kBlockQuads;
      const uint k = quad % kBlockQuads * 4;
      [[unroll]] for (uint c = 0; c < 4; ++c) staged[buffer_index][k + c][row / 4][row % 4] = fetched[i][c];
    }
  }
}

void multiply(float w[lane_cols][kBlock], uint block) {
  [[unroll]] for (uint k = 0; k < kBlock; ++k) {
    [[unroll]] for (uint m = 0; m < tile_rows; m += 4) {
      const vec4 x = staged[block & 1u][k][m / 4];
      [[unroll]] for (uint r = 0; r < 4; ++r) {
        [[unroll]] for (uint c = 0; c < lane_cols; ++c) {
          acc[c][m + r] = fma(w[c][k], x[r], acc[c][m + r]);
        }
      }
    }
  }
}

#elif defined(X_UNIFORM)

const uint kRowSlots = tile_rows;
uint row_of_slot(uint row) { return row; }
HOLD_X_ROWS(kRowSlots)

layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer UniformBlock { vec4 v[kBlockQuads]; };

void multiply(float w[lane_cols][kBlock], uint block) {
  const uint last_quad = pc.k / 4 - 1;
  const uint kRows = 8;  // that take turns, so that an addition need not wait for the one before
  [[unroll]] for (uint m = 0; m < tile_rows; m += kRows) {
#ifndef WEIGHT_FLOATS
    // Whole blocks: one address a row, of which the quads' are constants away.
    UniformBlock blocks[kRows];
    [[unroll]] for (uint r = 0; r < kRows; ++r) {
      const uint first = x_row_of_slot(m + r) + min(block * kBlockQuads, last_quad - (kBlockQuads - 1));
      blocks[r] = UniformBlock(pack64(pc.x) + uint64_t(first) * 16);
    }
#endif
    [[unroll]] for (uint q = 0; q < kBlockQuads; ++q) {
      const uint column = min(block * kBlockQuads + q, last_quad);
      [[unroll]] for (uint r = 0; r < kRows; ++r) {
#ifdef WEIGHT_FLOATS
        const vec4 x = load_quad(pc.x, x_row_of_slot(m + r) + column);
#else
        const vec4 x = blocks[r].v[q];
#endif
        [[unroll]] for (uint i = 0; i < 4; ++i) {
          [[unroll]] for (uint c = 0; c < lane_cols; ++c) {
            acc[c][m + r] = fma(w[c][4 * q + i], x[i], acc[c][m + r]);
          }
        }
      }
    }
  }
}

#else

// Four rows of 32 values are 32 quads: 32 / subgroup_size a lane.
const uint kLoads = 4 * kBlockQuads / subgroup_size;
const uint kRowSlots = tile_rows / 4 * kLoads;
uint row_of_slot(uint slot) {
  const uint quad = slot % kLoads * subgroup_size + gl_SubgroupInvocationID;
  return slot / kLoads * 4 + quad / kBlockQuads;
}
HOLD_X_ROWS(kRowSlots)

void multiply(float w[lane_cols][kBlock], uint block) {
  const uint lane = gl_SubgroupInvocationID;
  [[unroll]] for (uint m = 0; m < tile_rows; m += 4) {
    vec4 x[kLoads];
    [[unroll]] for (uint i = 0; i < kLoads; ++i) {
      const uint quad = i * subgroup_size + lane;
      const uint column = min(block * kBlockQuads + quad % kBlockQuads, pc.k / 4 - 1);
      x[i] = load_quad(pc.x, x_row_of_slot(m / 4 * kLoads + i) + column);
    }
    [[unroll]] for (uint k = 0; k < kBlock; ++k) {
      [[unroll]] for (uint r = 0; r < 4; ++r) {
        const uint quad = r * kBlockQuads + k / 4;
        const float value = subgroupShuffle(x[quad / subgroup_size][k % 4], quad % subgroup_size);
        [[unroll]] for (uint c = 0; c < lane_cols; ++c) {
          acc[c][m + r] = fma(w[c][k], value, acc[c][m + r]);
        }
      }
    }
  }
}

#endif

/// Add the products of one block of K.
void accumulate(WeightTile tiles[lane_cols], uint block) {
#ifdef X_SHARED
  fetch_x(block + 1);  // past the end: the last quad again, not used
#endif
  float w[lane_cols][kBlock];
  [[unroll]] for (uint c = 0; c < lane_cols; ++c) {
    read_weight_block(tiles[c], block % kTileBlocks, w[c]);
  }
  multiply(w, block);
#ifdef X_SHARED
  store_x((block + 1) & 1u);
  barrier();
#endif
}

void main() {
  use_weight_grid(pc.grid);
#ifndef X_SHARED
  const uint local = gl_SubgroupID * subgroup_size + gl_SubgroupInvocationID;
#else
  const uint local = gl_LocalInvocationIndex;
#endif
  if (!open_tile(tile_rows, workgroup_size * lane_cols)) return;
  hold_x_rows();
  const uint first_col = first_tile_col + local;
  const uint n_blocks = (pc.k + kBlock - 1) / kBlock;

  [[unroll]] for (uint c = 0; c < lane_cols; ++c) {
    [[unroll]] for (uint m = 0; m < tile_rows; ++m) acc[c][m] = 0.0;
  }
#ifdef X_SHARED
  fetch_x(0);
  store_x(0);
  barrier();
#endif
  for (uint first = 0; first < n_blocks; first += kOpenBlocks) {
    WeightTile tiles[lane_cols];
    [[unroll]] for (uint c = 0; c < lane_cols; ++c) {
#ifdef WEIGHT_LANES
      const uint row = first_tile_col + gl_SubgroupID * subgroup_size + c * workgroup_size;
      tiles[c] = open_lanes_tile(pc.weights, pc.n_col_tiles, min(row, pc.n - 1) / 32, row % 32,
                                 min(first / kTileBlocks, pc.n_col_tiles - 1));
#else
      const uint row = weight_row(first_col + c * workgroup_size);
      tiles[c] = open_weight_tile(pc.weights, pc.n_col_tiles, row, first / kTileBlocks);
#endif
    }
    if (kOpenBlocks == 1) {
      accumulate(tiles, first);
    } else {
      const uint last = min(first + kOpenBlocks, n_blocks);
      [[dont_unroll]] for (uint block = first; block < last; ++block) {
        accumulate(tiles, block);
      }
    }
  }

  Floats y = Floats(pc.y);
  [[unroll]] for (uint m = 0; m < tile_rows; ++m) {
    const uint at = y_row(m);
    [[unroll]] for (uint c = 0; c < lane_cols; ++c) {
      const uint col = first_col + c * workgroup_size;
      if (has_row(m) && has_col(col)) y.v[at + col] = biased(acc[c][m], col);
    }
  }
}
