#version 460
#extension GL_GOOGLE_include_directive : require
#ifdef X_BROADCAST
#extension GL_KHR_shader_subgroup_shuffle : require
#endif

#include "common/weights.glsl"
#if !defined(WEIGHT_F32) && !defined(WEIGHT_F16) && !defined(WEIGHT_BF16)
#define WEIGHT_INTEGERS 1
#include "common/weights_int8.glsl"
#endif
#include "common/x_quads.glsl"
#include "gemv/gemv.h"

// A lane owns lane_cols columns of y for all rows, so each weight is read and dequantised once.
// K is cut into workgroup_size / 32 slices of whole blocks; their sums are added in order at the end.
// How x reaches all lanes:
//   X_UNIFORM    every lane reads the same address: a scalar or broadcast load on GPUs
//   X_BROADCAST  see gemm.comp
// Lanes past the last column compute the last one again and store nothing.
layout(local_size_x_id = 0) in;

const uint kBlock = 32;
const uint kBlockQuads = kBlock / 4;
const uint kSliceLanes = 32;
const uint kSlices = workgroup_size / kSliceLanes;
const uint kSums = tile_rows * lane_cols * kSliceLanes;  // a workgroup's results

shared float partial[kSlices * kSums];

float acc[lane_cols][tile_rows];

#ifdef X_BROADCAST

const uint kLoads = (tile_rows * kBlockQuads + subgroup_size - 1) / subgroup_size;

/// A block of every row of x, spread over the lanes of a subgroup.
void load_x(uint block, out vec4 x[kLoads]) {
  [[unroll]] for (uint i = 0; i < kLoads; ++i) {
    const uint quad = i * subgroup_size + gl_SubgroupInvocationID;
    const uint row = min(quad / kBlockQuads, pc.rows - 1);
    const uint column = min(block * kBlockQuads + quad % kBlockQuads, pc.k / 4 - 1);
    x[i] = load_quad(pc.x, row * (pc.x_stride / 4) + column);
  }
}

float x_value(vec4 x[kLoads], uint row, uint k) {
  const uint quad = row * kBlockQuads + k / 4;
  return subgroupShuffle(x[quad / subgroup_size][k % 4], quad % subgroup_size);
}

#ifdef WEIGHT_INTEGERS

// Bytes are multiplied as they are, and their sums with the scales: half the operations a weight.
#define Codes WeightBytes
#define read_codes read_weight_bytes
const uint kPart = kHalfScales ? kBlock / 2 : kBlock;  // columns of one scale

/// Code k times kCodeScale: a signed byte is moved to the top of its word, where nothing has to be
/// done about its sign.
float code_of(Codes w, uint k) {
  const int word = k % 4 == 3 ? w.q[k / 4] : w.q[k / 4] << (24 - 8 * (k % 4));
  return float(k % 4 == 0 ? word : word & 0xFF000000);
}
const float kCodeScale = 16777216.0;  // 2^24

#else

struct Codes {
  float values[kBlock];
};
void read_codes(WeightTile t, uint block_of_tile, out Codes w) {
  read_weight_block(t, block_of_tile, w.values);
}
float code_of(Codes w, uint k) { return w.values[k]; }
const uint kPart = kBlock;

#endif

// Sums of few rows alternate, since an addition waits for the one before.
const uint kChains = tile_rows == 1 ? 4 : tile_rows == 2 ? 2 : 1;

/// Add the products of columns [first, first + kPart) of the block.
void multiply_part(Codes w[lane_cols], vec4 x[kLoads], uint first) {
  float sums[lane_cols][tile_rows][kChains];
  [[unroll]] for (uint i = 0; i < kPart; ++i) {
    const uint k = first + i;
    float code[lane_cols];
    [[unroll]] for (uint c = 0; c < lane_cols; ++c) code[c] = code_of(w[c], k);
    [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
      const float value = x_value(x, r, k);
      [[unroll]] for (uint c = 0; c < lane_cols; ++c) {
        const float sum = i < kChains ? 0.0 : sums[c][r][i % kChains];
        sums[c][r][i % kChains] = fma(code[c], value, sum);
      }
    }
  }
  [[unroll]] for (uint c = 0; c < lane_cols; ++c) {
    [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
      float sum = sums[c][r][0];
      [[unroll]] for (uint i = 1; i < kChains; ++i) sum += sums[c][r][i];
#ifdef WEIGHT_INTEGERS
      acc[c][r] = fma(w[c].scale[first * 2 / kBlock] * (1 / kCodeScale), sum, acc[c][r]);
#else
      acc[c][r] += sum;
#endif
    }
  }
}

void multiply(WeightTile tiles[lane_cols], uint block_of_tile, uint block) {
  vec4 x[kLoads];
  load_x(block, x);
  Codes w[lane_cols];
  [[unroll]] for (uint c = 0; c < lane_cols; ++c) read_codes(tiles[c], block_of_tile, w[c]);
  multiply_part(w, x, 0);
  if (kPart < kBlock) multiply_part(w, x, kPart);

#ifdef WEIGHT_INTEGERS
  if (!kOffsets) return;
  [[unroll]] for (uint i = 0; i < kLoads; ++i) x[i].x = (x[i].x + x[i].y) + (x[i].z + x[i].w);
  [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
    [[unroll]] for (uint half_block = 0; half_block < 2; ++half_block) {
      const uint k = half_block * kBlock / 2;
      const float sum = (x_value(x, r, k) + x_value(x, r, k + 4)) +
                        (x_value(x, r, k + 8) + x_value(x, r, k + 12));
      [[unroll]] for (uint c = 0; c < lane_cols; ++c) {
        acc[c][r] = fma(w[c].offset[half_block], sum, acc[c][r]);
      }
    }
  }
#endif
}

#else

void multiply(WeightTile tiles[lane_cols], uint block_of_tile, uint block) {
  float w[lane_cols][kBlock];
  [[unroll]] for (uint c = 0; c < lane_cols; ++c) read_weight_block(tiles[c], block_of_tile, w[c]);
  const uint last_quad = pc.k / 4 - 1;
  [[unroll]] for (uint q = 0; q < kBlockQuads; ++q) {
    const uint column = min(block * kBlockQuads + q, last_quad);
    [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
      const vec4 x = load_quad(pc.x, min(r, pc.rows - 1) * (pc.x_stride / 4) + column);
      [[unroll]] for (uint i = 0; i < 4; ++i) {
        [[unroll]] for (uint c = 0; c < lane_cols; ++c) {
          acc[c][r] = fma(w[c][4 * q + i], x[i], acc[c][r]);
        }
      }
    }
  }
}

#endif

void accumulate(WeightTile tiles[lane_cols], uint step) {
  [[unroll]] for (uint u = 0; u < unroll; ++u) {
    const uint block = step * unroll + u;
    multiply(tiles, block % kTileBlocks, block);
  }
}

void main() {
#ifdef X_BROADCAST
  const uint local = gl_SubgroupID * subgroup_size + gl_SubgroupInvocationID;
#else
  const uint local = gl_LocalInvocationIndex;
#endif
  const uint lane = local % kSliceLanes;
  const uint slice = local / kSliceLanes;
  const uint first_col = gl_WorkGroupID.x * (kSliceLanes * lane_cols) + lane;

  [[unroll]] for (uint c = 0; c < lane_cols; ++c) {
    [[unroll]] for (uint r = 0; r < tile_rows; ++r) acc[c][r] = 0.0;
  }
  // Steps of `unroll` blocks, none across two tiles; a slice takes consecutive steps.
  const uint n_blocks = (pc.k + kBlock - 1) / kBlock;
  const uint n_steps = (n_blocks + unroll - 1) / unroll;
  const uint slice_steps = (n_steps + kSlices - 1) / kSlices;
  const uint end = min((slice + 1) * slice_steps, n_steps);
  // A tile's header is decoded once for several steps where tiles are large (see gemm.comp).
  const uint kTileSteps = kTileBlocks / unroll;
  const uint kOpenSteps = kTileSteps > 2 ? kTileSteps : 1;
  for (uint step = slice * slice_steps; step < end;) {
    WeightTile tiles[lane_cols];
    [[unroll]] for (uint c = 0; c < lane_cols; ++c) {
      const uint col = min(first_col + c * kSliceLanes, pc.n - 1);
      tiles[c] = open_weight_tile(pc.weights, pc.n_col_tiles, col, step / kTileSteps);
    }
    if (kOpenSteps == 1) {
      accumulate(tiles, step);
      ++step;
    } else {
      const uint tile_end = min((step / kTileSteps + 1) * kTileSteps, end);
      [[dont_unroll]] for (; step < tile_end; ++step) accumulate(tiles, step);
    }
  }

  Floats y = Floats(pc.y);
  if (kSlices == 1) {
    [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
      [[unroll]] for (uint c = 0; c < lane_cols; ++c) {
        const uint col = first_col + c * kSliceLanes;
        if (r < pc.rows && col < pc.n) y.v[r * pc.y_stride + col] = acc[c][r];
      }
    }
    return;
  }
  [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
    [[unroll]] for (uint c = 0; c < lane_cols; ++c) {
      partial[slice * kSums + (r * lane_cols + c) * kSliceLanes + lane] = acc[c][r];
    }
  }
  barrier();
  for (uint i = local; i < kSums; i += workgroup_size) {
    const uint row = i / (lane_cols * kSliceLanes);
    const uint col = gl_WorkGroupID.x * (lane_cols * kSliceLanes) + i % (lane_cols * kSliceLanes);
    float sum = partial[i];
    for (uint s = 1; s < kSlices; ++s) sum += partial[s * kSums + i];
    if (row < pc.rows && col < pc.n) y.v[row * pc.y_stride + col] = sum;
  }
}
