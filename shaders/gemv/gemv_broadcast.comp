#version 460
#extension GL_KHR_shader_subgroup_shuffle : require

#define X_BROADCAST 1   // units of 64-bit integers, see common/weight_tile.glsl
#define WEIGHT_LANES 1  // and tiles of neighbouring rows
#include "common/activation.glsl"
#include "gemv/gemv_broadcast.h"
#include "common/weights.glsl"
#ifndef WEIGHT_FLOATS
#include "common/weights_int8.glsl"
#endif
#include "common/x_quads.glsl"

// For CPU drivers, whose subgroups are the lanes of a vector register. A subgroup computes
// lane_cols * subgroup_size neighbouring columns of y for all rows: its lanes' columns are
// neighbours, so that the columns of one step read a row of units (512 bytes with subgroups of 8 and
// four columns a lane) in order. A block of x is loaded once: by the lanes of a subgroup and
// shuffled, or with uniform_loads for all lanes. Where columns and blocks end drivers go on with what no lane does any
// more, so that addresses which lanes share must be valid there too; what lanes past the last column have is not stored.

const uint kBlock = 32;
const uint kBlockQuads = kBlock / 4;
const uint kQuads = tile_rows * kBlockQuads;
const uint kLoads = uniform_loads != 0 ? kQuads : (kQuads + subgroup_size - 1) / subgroup_size;
const uint kSpan = subgroup_size * lane_cols;  // columns of a subgroup

float acc[lane_cols][tile_rows];

/// A block of every row of x, in each lane or spread over those of a subgroup.
void load_x(uint block, out vec4 x[kLoads]) {
  [[unroll]] for (uint i = 0; i < kLoads; ++i) {
    const uint quad = uniform_loads != 0 ? i : i * subgroup_size + gl_SubgroupInvocationID;
    const uint row = min(quad / kBlockQuads, pc.rows - 1);
    const uint column = min(block * kBlockQuads + quad % kBlockQuads, pc.k / 4 - 1);
    x[i] = load_quad(pc.x, row * (pc.x_stride / 4) + column);
  }
}

// No functions of arrays: drivers take half their time for a kernel to see through the copies that calls make of them.
#define X_QUAD(row, k) ((row) * kBlockQuads + (k) / 4)
#define SHUFFLED_X(x, row, k) \
  subgroupShuffle(x[X_QUAD(row, k) / subgroup_size][(k) % 4], X_QUAD(row, k) % subgroup_size)
#define X_VALUE(x, row, k) \
  (uniform_loads != 0 ? x[min(X_QUAD(row, k), kLoads - 1)][(k) % 4] : SHUFFLED_X(x, row, k))

#ifndef WEIGHT_FLOATS

// Bytes are multiplied as they are, and their sums with the scales: half the operations a weight.
#define Codes WeightBytes
#define read_codes read_weight_bytes
const uint kPart = kHalfScales ? kBlock / 2 : kBlock;  // columns of one scale

/// Code k of chain k % 4, divided by chain_scale and kCodeScale: a byte that has no sign is taken where it
/// is in its word; one that has is moved to the top, where nothing has to be done about its sign.
#define CODE(w, k) code_of(w.q[(k) / 4], k)
float code_of(int q, uint k) {
  if (!kSignedCodes) return float(q & (0xFF << (8 * (k % 4))));
  const int word = k % 4 == 3 ? q : q << (24 - 8 * (k % 4));
  return float(k % 4 == 0 ? word : word & 0xFF000000);
}
float chain_scale(uint chain) { return kSignedCodes ? 1.0 : 1.0 / float(1 << (8 * chain)); }
const float kCodeScale = kSignedCodes ? 1.0 / 16777216.0 : 1.0;  // 2^-24

#else

struct Codes {
  float values[kBlock];
};
void read_codes(WeightTile t, uint block_of_tile, out Codes w) {
  read_weight_block(t, block_of_tile, w.values);
}
#define CODE(w, k) (w.values[k])
float chain_scale(uint chain) { return 1.0; }
const uint kPart = kBlock;

#endif

// A part's sum is that of four chains, of every fourth column each, whatever the number of rows: so a
// row's bits do not depend on it. Of few rows and columns several chains grow at a time, since an addition
// waits for the one before; of many, whose sums are enough for that, one after the other, for want of
// registers.
const uint kChains = 4;
const uint kSums = lane_cols * tile_rows;
const uint kLive = kSums > 8 ? 1 : kSums > 4 ? 2 : kChains;

void multiply(WeightTile tiles[lane_cols], uint block_of_tile, uint block) {
  vec4 x[kLoads];
  load_x(block, x);
  Codes w[lane_cols];
  [[unroll]] for (uint c = 0; c < lane_cols; ++c) read_codes(tiles[c], block_of_tile, w[c]);
  [[unroll]] for (uint first = 0; first < kBlock; first += kPart) {
    float sums[lane_cols][tile_rows];
    [[unroll]] for (uint chain = 0; chain < kChains; chain += kLive) {
      float live[lane_cols][tile_rows][kLive];
      [[unroll]] for (uint i = 0; i < kPart / kChains * kLive; ++i) {
        const uint k = first + chain + i / kLive * kChains + i % kLive;
        float code[lane_cols];
        [[unroll]] for (uint c = 0; c < lane_cols; ++c) code[c] = CODE(w[c], k);
        [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
          const float value = X_VALUE(x, r, k);
          [[unroll]] for (uint c = 0; c < lane_cols; ++c) {
            const float sum = i < kLive ? 0.0 : live[c][r][i % kLive];
            live[c][r][i % kLive] = fma(code[c], value, sum);
          }
        }
      }
      [[unroll]] for (uint c = 0; c < lane_cols; ++c) {
        [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
          [[unroll]] for (uint i = 0; i < kLive; ++i) {
            const float sum = live[c][r][i] * chain_scale(chain + i);
            sums[c][r] = chain + i == 0 ? sum : sums[c][r] + sum;
          }
        }
      }
    }
    [[unroll]] for (uint c = 0; c < lane_cols; ++c) {
      [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
#ifndef WEIGHT_FLOATS
        acc[c][r] = fma(w[c].scale[first * 2 / kBlock] * kCodeScale, sums[c][r], acc[c][r]);
#else
        acc[c][r] += sums[c][r];
#endif
      }
    }
  }

#ifndef WEIGHT_FLOATS
  if (!kOffsets) return;
  [[unroll]] for (uint i = 0; i < kLoads; ++i) x[i].x = (x[i].x + x[i].y) + (x[i].z + x[i].w);
  [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
    float sum[2];
    [[unroll]] for (uint half_block = 0; half_block < 2; ++half_block) {
      const uint k = half_block * kBlock / 2;
      sum[half_block] = (X_VALUE(x, r, k) + X_VALUE(x, r, k + 4)) +
                        (X_VALUE(x, r, k + 8) + X_VALUE(x, r, k + 12));
    }
    [[unroll]] for (uint c = 0; c < lane_cols; ++c) {
      if (kHalfScales) {
        acc[c][r] = fma(w[c].offset[0], sum[0], acc[c][r]);
        acc[c][r] = fma(w[c].offset[1], sum[1], acc[c][r]);
      } else {
        acc[c][r] = fma(w[c].offset[0], sum[0] + sum[1], acc[c][r]);
      }
    }
  }
#endif
}

/// Add the products of the subgroup's columns to acc.
void add_products(uvec2 weights, uint first_col) {
  // A tile's header is decoded once for all its blocks where tiles are large (see gemm.comp).
  const uint n_blocks = (pc.k + kBlock - 1) / kBlock;
  const uint kOpenBlocks = kTileBlocks > 2 ? kTileBlocks : 1;
  for (uint block = 0; block < n_blocks;) {
    WeightTile tiles[lane_cols];
    [[unroll]] for (uint c = 0; c < lane_cols; ++c) {
      // All of a span of up to 32 lies in one group, so that its columns have one address between them.
      const uint step = c * subgroup_size;
      const uint group = (kSpan <= 32 ? first_col : first_col + step) / 32;
      const uint first = kSpan <= 32 ? first_col % 32 + step : (first_col + step) % 32;
      tiles[c] = open_lanes_tile(weights, pc.n_col_tiles, min(group, (pc.n - 1) / 32), first,
                                 min(block / kTileBlocks, pc.n_col_tiles - 1));
    }
    if (kOpenBlocks == 1) {
      multiply(tiles, block % kTileBlocks, block);
      ++block;
    } else {
      const uint tile_end = min((block / kTileBlocks + 1) * kTileBlocks, n_blocks);
      [[dont_unroll]] for (; block < tile_end; ++block) {
        multiply(tiles, block % kTileBlocks, block);
      }
    }
  }
}

bool is_to(uint what) { return finishes != 0 && (pc.finish & what) != 0; }

uint n_squares(uint columns) { return (columns + GEMV_SQUARES - 1) / GEMV_SQUARES; }

float sum_of_lanes(float value) {
  float sum = 0.0;
  [[unroll]] for (uint lane = 0; lane < subgroup_size; ++lane) sum += subgroupShuffle(value, lane);
  return sum;
}

/// What a row's sums are multiplied with.
float scale_of(uint row) {
  const uint n = n_squares(pc.k);
  float sum = 0.0;
  for (uint first = 0; first < n; first += subgroup_size) {
    const uint i = first + gl_SubgroupInvocationID;
    const float square = Floats(pc.squares).v[min(row, pc.rows - 1) * n + min(i, n - 1)];
    sum += i < n ? square : 0.0;
  }
  return 1.0 / sqrt(sum_of_lanes(sum) / float(pc.k) + pc.eps);
}

/// A row's sums are added to y, which times the norm's weights is `normed`.
void add_row(uint row, uint first_col) {
  [[unroll]] for (uint group = 0; group < kSpan / GEMV_SQUARES; ++group) {
    const uint kSteps = GEMV_SQUARES / subgroup_size;
    float squares = 0.0;
    [[unroll]] for (uint c = group * kSteps; c < (group + 1) * kSteps; ++c) {
      const uint col = first_col + c * subgroup_size + gl_SubgroupInvocationID;
      if (row < pc.rows && col < pc.n) {
        const uint at = row * pc.y_stride + col;
        const float value = Floats(pc.y).v[at] + acc[c][row];
        Floats(pc.y).v[at] = value;
        Floats(pc.normed).v[at] = value * Floats(pc.norm).v[col];
        squares += value * value;
      }
    }
    squares = sum_of_lanes(squares);
    const uint first = first_col + group * GEMV_SQUARES;
    if (gl_SubgroupInvocationID == 0 && row < pc.rows && first < pc.n) {
      Floats(pc.squares).v[row * n_squares(pc.y_stride) + first / GEMV_SQUARES] = squares;
    }
  }
}

void main() {
  use_weight_grid(pc.grid);
  const uint subgroup = gl_WorkGroupID.x * (workgroup_size / subgroup_size) + gl_SubgroupID;
  const uint first_col = subgroup * kSpan;
  if (first_col >= pc.n) return;

  float gates[lane_cols][tile_rows];
  const uint n_matrices = is_to(GEMV_GATED) ? 2 : 1;
  for (uint matrix = 0; matrix < n_matrices; ++matrix) {
    [[unroll]] for (uint c = 0; c < lane_cols; ++c) {
      [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
        gates[c][r] = acc[c][r];
        acc[c][r] = 0.0;
      }
    }
    add_products(matrix == 0 ? pc.weights : address_add(pc.weights, pc.ups), first_col);
  }

  [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
    const float scale = is_to(GEMV_SCALED) ? scale_of(r) : 1.0;
    if (is_to(GEMV_ADDED)) add_row(r, first_col);
    [[unroll]] for (uint c = 0; c < lane_cols; ++c) {
      const uint col = first_col + c * subgroup_size + gl_SubgroupInvocationID;
      float y = acc[c][r] * scale;
      if (is_to(GEMV_GATED)) y *= activation(pc.finish >> GEMV_ACTIVATION_SHIFT, gates[c][r] * scale);
      if (r < pc.rows && col < pc.n && !is_to(GEMV_ADDED)) Floats(pc.y).v[r * pc.y_stride + col] = y;
    }
  }
}
