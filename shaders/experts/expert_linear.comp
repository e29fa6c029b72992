#version 460

#include "common/buffers.glsl"
#include "common/weights.glsl"
#include "experts/expert_linear.h"
#include "experts/routes.h"

// y = x Wᵀ + bias of one of a token's experts. A workgroup takes 32 rows of an expert, one rank of one token;
// its lanes own a row each, and there are workgroup_size / 32 slices of whole blocks of K, whose sums
// are added in order at the end. Rows that lie in another part of the weights are left to that part's
// dispatch.

const uint kLanes = 32;
const uint kSlices = workgroup_size / kLanes;

shared float partial[workgroup_size];

void main() {
  use_weight_grid(pc.grid);
  const uint local = gl_LocalInvocationIndex;
  const uint lane = local % kLanes;
  const uint slice = local / kLanes;
  const uint rank = gl_WorkGroupID.y;
  const uint token = gl_WorkGroupID.z;
  const uint route = token * gl_NumWorkGroups.y + rank;
  // Ids are below n_experts; the bound keeps what is read within the weights all the same.
  const uint expert = min(ExpertRoutes(pc.routes).v[route].expert, pc.n_experts - 1);
  const uint own = pc.first_output + gl_WorkGroupID.x * kLanes + lane;
  const uint row = expert * pc.n + own;
  const uint part_row = row - pc.first_row;  // wraps around before the part
  const bool mine = own < pc.n && part_row < pc.part_rows;

  float sum = 0.0;
  if (mine) {
    Vec4s x = Vec4s(pc.x);
    const uint x_first = (token * pc.x_stride + rank * pc.x_rank_stride) / 4;
    const uint n_quads = pc.k / 4;
    const uint n_blocks = (pc.k + 31) / 32;
    const uint slice_blocks = (n_blocks + kSlices - 1) / kSlices;
    const uint end = min((slice + 1) * slice_blocks, n_blocks);
    for (uint block = slice * slice_blocks; block < end; ++block) {
      float w[32];
      load_weights32(pc.weights, pc.n_col_tiles, part_row, block, w);
      [[unroll]] for (uint q = 0; q < 8; ++q) {
        // Past the last column weights are zero, and x is what any column has: it might be NaN there.
        const vec4 four = x.v[x_first + min(block * 8 + q, n_quads - 1)];
        [[unroll]] for (uint i = 0; i < 4; ++i) sum = fma(w[4 * q + i], four[i], sum);
      }
    }
  }
  if (kSlices > 1) {
    partial[local] = sum;
    barrier();
    if (slice != 0) return;
    for (uint s = 1; s < kSlices; ++s) sum += partial[s * kLanes + lane];
  }
  if (!mine) return;
  if (has_bias != 0) sum += Floats(pc.bias).v[row];
  Floats(pc.y).v[route * pc.y_stride + own] = sum;
}
