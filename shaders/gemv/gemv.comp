#version 460

#include "common/weights.glsl"
#include "common/x_quads.glsl"
#include "gemv/gemv.h"

// The portable kernel: it needs nothing of subgroups. A lane owns lane_cols columns of y for all
// rows, so each weight is read and dequantised once; x is read by every lane from the same address.
// K is cut into workgroup_size / 32 slices of whole blocks; their sums are added in order at the end. A row's
// bits depend on the number of slices and slice_blocks, not on tile_rows.
// Lanes past the last column compute the last one again and store nothing.

const uint kBlock = 32;
const uint kBlockQuads = kBlock / 4;
const uint kSliceLanes = 32;
const uint kSlices = workgroup_size / kSliceLanes;
const uint kGroupCols = lane_cols * kSliceLanes;
#include "gemv/gemv_finish.glsl"

float acc[lane_cols][tile_rows];

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

void accumulate(WeightTile tiles[lane_cols], uint step) {
  [[unroll]] for (uint u = 0; u < unroll; ++u) {
    const uint block = step * unroll + u;
    multiply(tiles, block % kTileBlocks, block);
  }
}

void main() {
  use_weight_grid(pc.grid);
  const uint local = gl_LocalInvocationIndex;
  const uint lane = local % kSliceLanes;
  const bool is_up = is_to(GEMV_GATED) && local / kSliceLanes >= n_slices();
  const uint slice = local / kSliceLanes - (is_up ? n_slices() : 0);
  const uint first_col = gl_WorkGroupID.x * kGroupCols + lane;
  const uvec2 weights = address_add(pc.weights, is_up ? pc.ups : 0);

  [[unroll]] for (uint c = 0; c < lane_cols; ++c) {
    [[unroll]] for (uint r = 0; r < tile_rows; ++r) acc[c][r] = 0.0;
  }
  // Steps of `unroll` blocks, none across two tiles; a slice takes consecutive steps, of as many whole
  // slice_blocks as the others.
  const uint n_blocks = (pc.k + kBlock - 1) / kBlock;
  const uint n_steps = (n_blocks + unroll - 1) / unroll;
  const uint kUnitSteps = slice_blocks / unroll;
  const uint n_units = (n_steps + kUnitSteps - 1) / kUnitSteps;
  const uint slice_steps = (n_units + n_slices() - 1) / n_slices() * kUnitSteps;
  const uint end = min((slice + 1) * slice_steps, n_steps);
  // A tile's header is decoded once for several steps where tiles are large (see gemm.comp).
  const uint kTileSteps = kTileBlocks / unroll;
  const uint kOpenSteps = kTileSteps > 2 ? kTileSteps : 1;
  for (uint step = slice * slice_steps; step < end;) {
    WeightTile tiles[lane_cols];
    [[unroll]] for (uint c = 0; c < lane_cols; ++c) {
      const uint col = min(first_col + c * kSliceLanes, pc.n - 1);
      tiles[c] = open_weight_tile(weights, pc.n_col_tiles, col, step / kTileSteps);
    }
    if (kOpenSteps == 1) {
      accumulate(tiles, step);
      ++step;
    } else {
      const uint tile_end = min((step / kTileSteps + 1) * kTileSteps, end);
      [[dont_unroll]] for (; step < tile_end; ++step) accumulate(tiles, step);
    }
  }

  [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
    [[unroll]] for (uint c = 0; c < lane_cols; ++c) {
      partial[local / kSliceLanes * kSums + (r * lane_cols + c) * kSliceLanes + lane] = acc[c][r];
    }
  }
  finish(local, gl_WorkGroupID.x, 0);
}
