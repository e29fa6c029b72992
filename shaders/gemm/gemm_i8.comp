#version 460
#extension GL_EXT_integer_dot_product : require

#include "common/buffers.glsl"
#include "common/weights.glsl"
#include "common/weights_int8.glsl"
#include "gemm/gemm_i8.h"

// The tiling is that of gemm.comp: a lane owns lane_cols columns of y, holds the bytes of 32 weights of
// each in registers and multiplies them with tile_rows rows of quantised x, which are staged in shared
// memory, double-buffered, and read by all lanes at once. With w = scale * q + offset and x = s * p, a
// block adds  s * (scale * sum(q p) + offset * sum(p)),  whose sums are exact.
// Lanes past the last column compute the last one again and store nothing.

const uint kBlock = 32;
const uint kOpenBlocks = kTileBlocks > 2 ? kTileBlocks : 1;  // see gemm.comp

shared uvec4 staged_quants[2][tile_rows][2];
shared uvec2 staged_scales[2][tile_rows];

const uint kLoads = (2 * tile_rows + workgroup_size - 1) / workgroup_size;
uvec4 fetched_quants[kLoads];
uvec2 fetched_scales[kLoads];

float acc[lane_cols][tile_rows];

void fetch_x(uint first_row, uint block) {
  [[unroll]] for (uint i = 0; i < kLoads; ++i) {
    const uint at = gl_LocalInvocationIndex + i * workgroup_size;
    const uint base = min(block, pc.k / kBlock - 1) * pc.rows;
    const uint row = base + min(first_row + at / 2, pc.rows - 1);
    fetched_quants[i] = Uvec4s(pc.x).v[row * 2 + at % 2];
    fetched_scales[i] = Uvec2s(address_add(pc.x, pc.rows * pc.k)).v[row];
  }
}

void store_x(uint buffer_index) {
  [[unroll]] for (uint i = 0; i < kLoads; ++i) {
    const uint at = gl_LocalInvocationIndex + i * workgroup_size;
    if (at < 2 * tile_rows) {
      staged_quants[buffer_index][at / 2][at % 2] = fetched_quants[i];
      if (at % 2 == 0) staged_scales[buffer_index][at / 2] = fetched_scales[i];
    }
  }
}

int dot_half(WeightBytes w, uint h, uvec4 x) {
  int sum = 0;
  [[unroll]] for (uint i = 0; i < 4; ++i) sum += dotPacked4x8EXT(w.q[4 * h + i], int(x[i]));
  return sum;
}

/// Add the products of one block of K.
void accumulate(WeightTile tiles[lane_cols], uint first_row, uint block) {
  fetch_x(first_row, block + 1);  // past the end: the last block again, not used
  WeightBytes w[lane_cols];
  [[unroll]] for (uint c = 0; c < lane_cols; ++c) {
    read_weight_bytes(tiles[c], block % kTileBlocks, w[c]);
  }
  const uint buffer_index = block & 1u;
  [[unroll]] for (uint m = 0; m < tile_rows; ++m) {
    const uvec4 low = staged_quants[buffer_index][m][0];
    const uvec4 high = staged_quants[buffer_index][m][1];
    const uvec2 scale_and_sums = staged_scales[buffer_index][m];
    const float scale = uintBitsToFloat(scale_and_sums.x);
    const int sums = int(scale_and_sums.y);
    const float low_sum = float(bitfieldExtract(sums, 0, 16));
    const float high_sum = float(bitfieldExtract(sums, 16, 16));
    [[unroll]] for (uint c = 0; c < lane_cols; ++c) {
      const int low_dot = dot_half(w[c], 0, low);
      const int high_dot = dot_half(w[c], 1, high);
      float sum;
      if (kHalfScales) {
        sum = fma(w[c].scale.y, float(high_dot), w[c].scale.x * float(low_dot));
        if (kOffsets) sum = fma(w[c].offset.x, low_sum, fma(w[c].offset.y, high_sum, sum));
      } else {
        sum = w[c].scale.x * float(low_dot + high_dot);
        if (kOffsets) sum = fma(w[c].offset.x, low_sum + high_sum, sum);
      }
      acc[c][m] = fma(scale, sum, acc[c][m]);
    }
  }
  store_x(buffer_index ^ 1u);
  barrier();
}

void main() {
  use_weight_grid(pc.grid);
  const uint first_row = pc.first_row + gl_WorkGroupID.x * tile_rows;
  const uint first_col =
      gl_WorkGroupID.y * (workgroup_size * lane_cols) + gl_LocalInvocationIndex;

  [[unroll]] for (uint c = 0; c < lane_cols; ++c) {
    [[unroll]] for (uint m = 0; m < tile_rows; ++m) acc[c][m] = 0.0;
  }
  const uint n_blocks = pc.k / kBlock;
  fetch_x(first_row, 0);
  store_x(0);
  barrier();
  for (uint first = 0; first < n_blocks; first += kOpenBlocks) {
    WeightTile tiles[lane_cols];
    [[unroll]] for (uint c = 0; c < lane_cols; ++c) {
      const uint col = min(first_col + c * workgroup_size, pc.n - 1);
      tiles[c] = open_weight_tile(pc.weights, pc.n_col_tiles, col, first / kTileBlocks);
    }
    if (kOpenBlocks == 1) {
      accumulate(tiles, first_row, first);
    } else {
      const uint last = min(first + kOpenBlocks, n_blocks);
      [[dont_unroll]] for (uint block = first; block < last; ++block) {
        accumulate(tiles, first_row, block);
      }
    }
  }

  Floats y = Floats(pc.y);
  [[unroll]] for (uint m = 0; m < tile_rows; ++m) {
    const uint row = first_row + m;
    [[unroll]] for (uint c = 0; c < lane_cols; ++c) {
      const uint col = first_col + c * workgroup_size;
      if (row < pc.rows && col < pc.n) y.v[row * pc.y_stride + col] = acc[c][m];
    }
  }
}
