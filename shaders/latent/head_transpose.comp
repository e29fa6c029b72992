#version 460

#include "common/buffers.glsl"
#include "common/weights.glsl"
#include "latent/head_transpose.h"

// Each head's matrix transposed, as floats in the resident layout. A workgroup takes a block of 32
// columns of 32 rows of a head, whose columns become rows: a lane has a row, and so a column of y. Columns
// behind the last row are zeros, as in every matrix. Rows that lie in another part are left to that part's
// dispatch.

const uint kTile = 32;  // rows and columns of a tile of floats

void main() {
  use_weight_grid(pc.grid);
  const uint block = gl_WorkGroupID.x;
  const uint column = gl_WorkGroupID.y * kTile + gl_LocalInvocationIndex;
  const uint y_head = pc.first_y_head + gl_WorkGroupID.z;
  const uint part_row = (pc.first_head + y_head) * pc.n_rows + column - pc.first_row;  // wraps around
  const bool is_row = column < pc.n_rows;
  if (is_row ? part_row >= pc.part_rows : pc.writes_ends == 0) return;
  float w[32];
  [[unroll]] for (uint c = 0; c < 32; ++c) w[c] = 0.0;
  if (is_row) load_weights32(pc.weights, pc.n_col_tiles, part_row, block, w);
  const uint y_tiles = (pc.n_rows + kTile - 1) / kTile;
  [[unroll]] for (uint c = 0; c < 32; ++c) {
    if (block * 32 + c >= pc.n_cols) break;
    const uint row = y_head * pc.n_cols + block * 32 + c;
    const uint tile = row / kTile * y_tiles + column / kTile;
    const uint unit = tile * kTile * kTile / 4 + column % kTile / 4 * kTile + row % kTile;
    Floats(pc.y).v[unit * 4 + column % 4] = w[c];
  }
}
