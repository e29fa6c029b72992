#version 460

#include "common/buffers.glsl"
#include "common/weights.glsl"
#include "head_linear/head_linear.h"

// y = x Wᵀ of each head with a matrix of its own. A workgroup takes 32 outputs of a head, those of
// tile_rows rows: its lanes own an output each, and a weight is read once for all the rows. There are
// workgroup_size / 32 slices of whole blocks of K, whose sums are added in order at the end. A row's sums
// do not depend on the others, nor on how many a tile has. Outputs behind the product's are numbers of x.
// Rows of weights that lie in another part are left to that part's dispatch.

const uint kLanes = 32;
const uint kSlices = workgroup_size / kLanes;

shared float partial[tile_rows * workgroup_size];

/// Of row `r` of the tile, or the last one there is.
uint row_of(uint r) { return min(gl_WorkGroupID.z * tile_rows + r, pc.rows - 1); }

void main() {
  use_weight_grid(pc.grid);
  const uint local = gl_LocalInvocationIndex;
  const uint lane = local % kLanes;
  const uint slice = local / kLanes;
  const uint head = gl_WorkGroupID.y;
  const uint own = gl_WorkGroupID.x * kLanes + lane;
  const uint part_row = head * pc.head_rows + pc.first_of_head + own - pc.first_row;  // wraps around
  const bool mine = own < pc.n && part_row < pc.part_rows;
  const uint x_head = head * pc.x_head_stride;

  float sum[tile_rows];
  [[unroll]] for (uint r = 0; r < tile_rows; ++r) sum[r] = 0.0;
  if (mine) {
    Vec4s x = Vec4s(pc.x);
    const uint n_quads = pc.k / 4;
    const uint n_blocks = (pc.k + 31) / 32;
    const uint slice_blocks = (n_blocks + kSlices - 1) / kSlices;
    const uint end = min((slice + 1) * slice_blocks, n_blocks);
    for (uint block = slice * slice_blocks; block < end; ++block) {
      float w[32];
      load_weights32(pc.weights, pc.n_col_tiles, part_row, block, w);
      [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
        const uint x_first = (row_of(r) * pc.x_stride + x_head) / 4;
        [[unroll]] for (uint q = 0; q < 8; ++q) {
          // Past the last column weights are zero, and x is what any column has: it might be NaN there.
          const vec4 four = x.v[x_first + min(block * 8 + q, n_quads - 1)];
          [[unroll]] for (uint i = 0; i < 4; ++i) sum[r] = fma(w[4 * q + i], four[i], sum[r]);
        }
      }
    }
  }
  if (kSlices > 1) {
    [[unroll]] for (uint r = 0; r < tile_rows; ++r) partial[r * workgroup_size + local] = sum[r];
    barrier();
    if (slice != 0) return;
    [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
      for (uint s = 1; s < kSlices; ++s) sum[r] += partial[r * workgroup_size + s * kLanes + lane];
    }
  }
  // The first part's dispatch has what is kept.
  const bool kept = pc.first_row == 0 && own >= pc.n && own < pc.n + pc.n_kept;
  if (!mine && !kept) return;
  [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
    const uint row = gl_WorkGroupID.z * tile_rows + r;
    if (row >= pc.rows) break;
    const float value =
        mine ? sum[r] : Floats(pc.x).v[row * pc.x_stride + x_head + pc.k + own - pc.n];
    Floats(pc.y).v[row * pc.y_stride + head * (pc.n + pc.n_kept) + own] = value;
  }
}
