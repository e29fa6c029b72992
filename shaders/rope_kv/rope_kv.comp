#version 460
#extension GL_GOOGLE_include_directive : require

#include "common/buffers.glsl"
#include "common/half.glsl"
#include "rope_kv/rope_kv.h"

// One row per gl_WorkGroupID.x. Its tasks, spread over lanes and gl_WorkGroupID.y: one per rotated
// pair of q, then one per 8 elements of k and of v.
layout(local_size_x_id = 0) in;

const uint half_dims = rope_dims / 2;
const uint octets = head_dim / 8;

/// Element `d` of a head at `first`, rotated.
float rotated(uint first, uint d, uint first_angle) {
  Floats x = Floats(pc.qkv);
  const float own = x.v[first + d];
  if (d >= rope_dims) return own;
  const uint pair = halves != 0 ? (d < half_dims ? d : d - half_dims) : d / 2;
  const bool is_second = halves != 0 ? d >= half_dims : (d & 1) != 0;
  const uint step = halves != 0 ? half_dims : 1;
  const float other = x.v[first + (is_second ? d - step : d + step)];
  const vec2 angle = Vec2s(pc.rope_table).v[first_angle + pair];
  return fma(own, angle.x, other * (is_second ? angle.y : -angle.y));
}

/// Store 8 elements as 16-byte units that lie `unit_stride` bytes apart.
void store(uvec2 address, uint unit_stride, float x[8]) {
  if (kv_f16 != 0) {
    Uvec4s(address).v[0] = uvec4(half2_bits(x[0], x[1]), half2_bits(x[2], x[3]),
                                 half2_bits(x[4], x[5]), half2_bits(x[6], x[7]));
  } else {
    Vec4s(address).v[0] = vec4(x[0], x[1], x[2], x[3]);
    Vec4s(address_add(address, unit_stride)).v[0] = vec4(x[4], x[5], x[6], x[7]);
  }
}

void main() {
  const uint row = gl_WorkGroupID.x;
  const uint position = Uints(pc.positions).v[row];
  const uint first_angle = position * half_dims;
  const uint q_first = row * pc.row_stride;
  const uint k_first = q_first + pc.n_heads * head_dim;
  const uint v_first = k_first + pc.n_kv_heads * head_dim;

  const uint q_tasks = pc.n_heads * half_dims;
  const uint k_tasks = pc.n_kv_heads * octets;
  const uint n_tasks = q_tasks + 2 * k_tasks;

  const uint element_bytes = kv_f16 != 0 ? 2 : 4;
  const uint plane_bytes = 16 * pc.n_kv_heads * head_dim * element_bytes;
  const uint table_index = Uints(pc.row_seq).v[row] * pc.table_stride + position / 16;
  const uvec2 block = address_add(Uvec2s(pc.block_table).v[table_index], pc.layer_offset);
  const uint token = position % 16;

  for (uint task = gl_WorkGroupID.y * workgroup_size + gl_LocalInvocationIndex; task < n_tasks;
       task += gl_NumWorkGroups.y * workgroup_size) {
    Floats x = Floats(pc.qkv);
    if (task < q_tasks) {
      const uint pair = task % half_dims;
      const uint head = q_first + task / half_dims * head_dim;
      const uint first = head + (halves != 0 ? pair : 2 * pair);
      const uint second = first + (halves != 0 ? half_dims : 1);
      const vec2 angle = Vec2s(pc.rope_table).v[first_angle + pair];
      const float a = x.v[first];
      const float b = x.v[second];
      x.v[first] = fma(a, angle.x, b * -angle.y);
      x.v[second] = fma(b, angle.x, a * angle.y);
      continue;
    }
    const bool is_v = task >= q_tasks + k_tasks;
    const uint index = task - q_tasks - (is_v ? k_tasks : 0);
    const uint kv_head = index / octets;
    const uint octet = index % octets;
    float values[8];
    if (is_v) {
      [[unroll]] for (uint i = 0; i < 8; ++i) values[i] = x.v[v_first + index * 8 + i];
      const uint offset = ((kv_head * 16 + token) * head_dim + octet * 8) * element_bytes;
      store(address_add(block, plane_bytes + offset), 16, values);
    } else {
      [[unroll]] for (uint i = 0; i < 8; ++i) {
        values[i] = rotated(k_first + kv_head * head_dim, octet * 8 + i, first_angle);
      }
      // [kv_head][unit][token], 16 bytes a unit; 8 elements are one unit of halves, two of floats.
      const uint units = octets * (element_bytes / 2);
      const uint unit = octet * (element_bytes / 2);
      store(address_add(block, ((kv_head * units + unit) * 16 + token) * 16), 256, values);
    }
  }
}
