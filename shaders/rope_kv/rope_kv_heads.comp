#version 460
#extension GL_GOOGLE_include_directive : require

#include "common/buffers.glsl"
#include "rope_kv/rope_kv_heads.h"
#include "rope_kv/kv_write.glsl"

// As rope_kv.comp, with biases and norms of heads before: one workgroup per row and head, of q, then of
// k, then of v. The head with its bias is kept in shared memory, since an element needs its pair's other
// one and the sum of all squares, while q is updated in place.
layout(local_size_x_id = 0) in;

const uint half_dims = rope_dims / 2;

shared float kept[head_dim];
shared float partial[workgroup_size];

float normed(uint d, float scale, Floats weight) {
  return head_norms != 0 ? kept[d] * scale * weight.v[d] : kept[d];
}

void main() {
  const uint lane = gl_LocalInvocationIndex;
  const uint row = gl_WorkGroupID.x;
  const uint head = gl_WorkGroupID.y;
  const bool is_q = head < pc.n_heads;
  const bool is_v = head >= pc.n_heads + pc.n_kv_heads;
  const uint first = row * pc.row_stride + head * head_dim;
  Floats x = Floats(pc.qkv);

  float sum = 0.0;
  for (uint d = lane; d < head_dim; d += workgroup_size) {
    float value = x.v[first + d];
    if (biases != 0) value += Floats(pc.bias).v[head * head_dim + d];
    kept[d] = value;
    sum = fma(value, value, sum);
  }
  partial[lane] = sum;
  barrier();
  float scale = 1.0;
  if (head_norms != 0) {
    for (uint width = workgroup_size / 2; width > 0; width /= 2) {
      if (lane < width) partial[lane] += partial[lane + width];
      barrier();
    }
    scale = 1.0 / sqrt(partial[0] / float(head_dim) + pc.norm_eps);
  }

  const uint position = Uints(pc.positions).v[row];
  const uint first_angle = position * half_dims;
  const uint table_index = Uints(pc.row_seq).v[row] * pc.table_stride + position / 16;
  const uvec2 block = address_add(Uvec2s(pc.block_table).v[table_index], pc.layer_offset);
  Floats weight = Floats(is_q ? pc.q_norm : pc.k_norm);

  for (uint d = 2 * lane; d < head_dim; d += 2 * workgroup_size) {
    float values[2];
    [[unroll]] for (uint i = 0; i < 2; ++i) {
      const uint e = d + i;
      if (is_v) {
        values[i] = kept[e];
        continue;
      }
      values[i] = normed(e, scale, weight);
      if (e >= rope_dims) continue;
      const uint pair = halves != 0 ? (e < half_dims ? e : e - half_dims) : e / 2;
      const bool is_second = halves != 0 ? e >= half_dims : (e & 1) != 0;
      const uint step = halves != 0 ? half_dims : 1;
      const float other = normed(is_second ? e - step : e + step, scale, weight);
      const vec2 angle = Vec2s(pc.rope_table).v[first_angle + pair];
      values[i] = fma(values[i], angle.x, other * (is_second ? angle.y : -angle.y));
    }
    if (is_q) {
      x.v[first + d] = values[0];
      x.v[first + d + 1] = values[1];
    } else {
      const uint kv_head = head - pc.n_heads - (is_v ? pc.n_kv_heads : 0);
      write_kv(block, pc.n_kv_heads, position % 16, is_v, kv_head, d, values[0], values[1]);
    }
  }
}
