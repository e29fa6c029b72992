#version 460

#include "common/activation.glsl"
#include "common/buffers.glsl"
#include "common/state_item.h"
#include "causal_conv/causal_conv.h"

// An invocation takes one column of one row. The row's sum has the same terms in the same order
// wherever its sequence is cut.

void main() {
  const uint col = gl_WorkGroupID.x * workgroup_size + gl_LocalInvocationIndex;
  if (col >= pc.n) return;
  const uint row = pc.first_row + gl_WorkGroupID.y;
  const StateItem item = StateItems(pc.items).v[Uints(pc.row_item).v[row]];
  const uint token = row - item.first_row;
  const bool is_last = token + 1 == item.n_rows;
  Floats before = Floats(address_add(item.before, pc.state_offset));
  Floats after = Floats(address_add(item.after, pc.state_offset));
  float sum = pc.has_bias != 0 ? Floats(pc.bias).v[col] : 0.0;
  for (uint k = 0; k < taps; ++k) {
    const uint back = taps - 1 - k;
    float x = 0.0;
    if (back <= token) {
      x = Floats(pc.x).v[(row - back) * pc.x_stride + col];
    } else if (item.begins == 0) {
      x = before.v[(token + k) * pc.n + col];
    }
    sum = fma(Floats(pc.weight).v[col * taps + k], x, sum);
    if (is_last && k > 0) after.v[(k - 1) * pc.n + col] = x;
  }
  Floats(pc.y).v[row * pc.y_stride + col] = applies_silu != 0 ? activation(ACTIVATION_SILU, sum) : sum;
}
