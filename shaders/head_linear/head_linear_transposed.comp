#version 460

#include "common/buffers.glsl"
#include "common/weights.glsl"
#include "head_linear/head_linear_transposed.h"

// y = x W of each head with a matrix of its own: an output is the sum of a column of W, each weight times
// its row's number of x. A workgroup takes a block of 32 columns of a head, for one row of x. Its lanes
// read a row of W each, as matrices lie, and sum over every 32nd row; then each adds up the lanes' sums
// of its own column, in order. Outputs behind the product's are numbers of x. Where a head's rows lie in
// two parts of the weights, the second part's dispatch adds to what the first has written.

const uint kBlock = 32;

shared float partial[kBlock * (workgroup_size + 1)];  // padded: lanes then hit other banks

void main() {
  use_weight_grid(pc.grid);
  const uint lane = gl_LocalInvocationIndex;
  const uint block = gl_WorkGroupID.x;
  const uint head = gl_WorkGroupID.y;
  const uint row = gl_WorkGroupID.z;
  const uint x_first = row * pc.x_stride + head * pc.x_head_stride;
  const uint y_first = row * pc.y_stride + head * (pc.k + pc.n_kept);
  Floats x = Floats(pc.x);
  Floats y = Floats(pc.y);

  const uint n_blocks = (pc.k + kBlock - 1) / kBlock;
  if (block >= n_blocks) {
    const uint own = (block - n_blocks) * kBlock + lane;
    if (own < pc.n_kept && pc.first_row == 0) y.v[y_first + pc.k + own] = x.v[x_first + pc.n + own];
    return;
  }

  float sum[kBlock];
  [[unroll]] for (uint c = 0; c < kBlock; ++c) sum[c] = 0.0;
  for (uint r = lane; r < pc.n; r += workgroup_size) {
    const uint part_row = head * pc.head_rows + pc.first_of_head + r - pc.first_row;  // wraps around
    if (part_row >= pc.part_rows) continue;
    float w[kBlock];
    load_weights32(pc.weights, pc.n_col_tiles, part_row, block, w);
    const float own = x.v[x_first + r];
    [[unroll]] for (uint c = 0; c < kBlock; ++c) sum[c] = fma(w[c], own, sum[c]);
  }
  [[unroll]] for (uint c = 0; c < kBlock; ++c) partial[c * (workgroup_size + 1) + lane] = sum[c];
  barrier();
  for (uint c = lane; c < kBlock; c += workgroup_size) {
    const uint column = block * kBlock + c;
    if (column >= pc.k) continue;
    float total = partial[c * (workgroup_size + 1)];
    for (uint l = 1; l < workgroup_size; ++l) total += partial[c * (workgroup_size + 1) + l];
    if (pc.first_row != 0) total += y.v[y_first + column];
    y.v[y_first + column] = total;
  }
}
