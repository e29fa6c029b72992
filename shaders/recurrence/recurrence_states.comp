#version 460

#include "common/buffers.glsl"
#include "common/state_item.h"
#include "recurrence/recurrence_states.h"
#include "recurrence/softplus.glsl"

// recurrence.comp's sums where each number of a state decays by itself (Mamba: Gu and Dao 2023). What a
// row leaves of another's is no factor of either vector then, so that rows cannot be products of matrices;
// but columns need not know of each other, and their states are small. So an invocation takes a column
// through the rows of one sequence by itself, with its state in registers, and shares with its workgroup
// only the keys and queries of some rows at a time. A row's sums are the same wherever its sequence is
// cut: by steps, or by dispatches of one step, of which each goes on with what the one before it has left.

const uint kQuads = (key_dim + 3) / 4;

/// Keys, then queries: zero behind the last key.
shared vec4 rows[2 * piece_rows * kQuads];

vec4 quad_of(uvec2 address, uint first, uint key, float scale) {
  vec4 quad;
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    const float one = Floats(address).v[first + min(key + i, key_dim - 1)];
    quad[i] = key + i < key_dim ? one * scale : 0.0;
  }
  return quad;
}

void load_rows(uint row, uint n, uint key_head) {
  for (uint at = gl_LocalInvocationIndex; at < 2 * n * kQuads; at += workgroup_size) {
    const bool is_query = at >= n * kQuads;
    const uint r = (at - (is_query ? n * kQuads : 0)) / kQuads;
    const uint key = 4 * (at % kQuads);
    const uint first = (row + r) * (is_query ? pc.q_stride : pc.k_stride) + key_head * key_dim;
    rows[((is_query ? piece_rows : 0) + r) * kQuads + at % kQuads] =
        quad_of(is_query ? pc.q : pc.k, first, key, is_query ? pc.q_scale : pc.k_scale);
  }
}

void main() {
  const uint column = gl_WorkGroupID.x * workgroup_size + gl_LocalInvocationIndex;
  const bool in_range = column < value_dim;
  const uint head = pc.first_head + gl_WorkGroupID.y;
  const uint key_head = by_remainder != 0 ? head % key_heads : head / heads_per_key;
  const StateItem item = StateItems(pc.items).v[gl_WorkGroupID.z];
  if (pc.first_row != 0 && pc.first_row >= item.n_rows) return;  // its last row is behind it
  const uvec2 before = pc.first_row == 0 ? item.before : item.after;
  const uvec2 source = address_add(before, pc.state_offset);
  const bool begins = pc.first_row == 0 && item.begins != 0;
  const uint value = head * value_dim + (in_range ? column : 0);
  const uint state = value * key_dim;
  const float bias = Floats(pc.bias).v[value];
  const float d = has_d != 0 ? Floats(pc.d).v[value] : 0.0;

  vec4 s[kQuads];
  vec4 a[kQuads];
  [[unroll]] for (uint i = 0; i < kQuads; ++i) {
    s[i] = begins ? vec4(0.0) : quad_of(source, state, 4 * i, 1.0);
    a[i] = quad_of(pc.a, state, 4 * i, 1.0);
  }

  const uint end = min(item.n_rows, pc.first_row + pc.n_rows);
  for (uint first = pc.first_row; first < end; first += piece_rows) {
    const uint n = min(piece_rows, end - first);
    const uint row = item.first_row + first;
    barrier();
    load_rows(row, n, key_head);
    barrier();
    for (uint r = 0; r < n; ++r) {
      const float dt = softplus(Floats(pc.step).v[(row + r) * pc.step_stride + value] + bias);
      const float v = Floats(pc.v).v[(row + r) * pc.v_stride + value];
      const vec4 u = vec4(dt * v);
      vec4 y = vec4(0.0);
      [[unroll]] for (uint i = 0; i < kQuads; ++i) {
        s[i] = fma(u, rows[r * kQuads + i], s[i] * exp(a[i] * dt));
        y = fma(s[i], rows[(piece_rows + r) * kQuads + i], y);
      }
      if (!in_range) continue;
      Floats(pc.y).v[(row + r) * pc.y_stride + value] =
          fma(d, v, (y.x + y.y) + (y.z + y.w));
    }
  }

  if (!in_range) return;
  const uvec2 target = address_add(item.after, pc.state_offset);
  [[unroll]] for (uint i = 0; i < kQuads; ++i) {
    [[unroll]] for (uint j = 0; j < 4; ++j) {
      if (4 * i + j < key_dim) Floats(target).v[state + 4 * i + j] = s[i][j];
    }
  }
}
