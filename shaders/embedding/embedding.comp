#version 460

#include "common/buffers.glsl"
#include "common/weights.glsl"
#include "embedding/embedding.h"

// y[row] = scale times the dequantised row tokens[row] of the table. A lane takes 32 columns of one row;
// rows whose token lies in another part of the table are left to that part's dispatch.

void main() {
  use_weight_grid(pc.grid);
  const uint block = gl_WorkGroupID.x * workgroup_size + gl_LocalInvocationIndex;
  const uint col = 32 * block;
  if (col >= pc.n) return;
  const uint row = gl_WorkGroupID.y;
  uint token = Uints(pc.tokens).v[row];
  if ((token & 0x80000000u) != 0) token = Uints(pc.sampled).v[token & 0x7FFFFFFFu];
  token = min(token, pc.last_token);
  if (token < pc.first_row || token - pc.first_row >= pc.n_rows) return;

  float w[32];
  load_weights32(pc.table, pc.n_col_tiles, token - pc.first_row, block, w);
  if (pc.scale != 1.0) {  // a product with 1 might still flush what is subnormal
    [[unroll]] for (uint i = 0; i < 32; ++i) w[i] *= pc.scale;
  }
  const uint first = row * pc.n + col;
  if (pc.n % 32 == 0) {
    [[unroll]] for (uint i = 0; i < 32; i += 4) {
      Vec4s(pc.y).v[(first + i) / 4] = vec4(w[i], w[i + 1], w[i + 2], w[i + 3]);
    }
  } else {
    [[unroll]] for (uint i = 0; i < 32; ++i) {
      if (col + i < pc.n) Floats(pc.y).v[first + i] = w[i];
    }
  }
}
