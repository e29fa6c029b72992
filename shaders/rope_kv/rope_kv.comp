#version 460

#include "common/buffers.glsl"
#include "rope_kv/rope_kv.h"
#include "rope_kv/kv_write.glsl"

// One row per gl_WorkGroupID.x. Its tasks, spread over lanes and gl_WorkGroupID.y: one per rotated
// pair of q, then one per two neighbours of k and of v, where there are values.

const uint half_dims = rope_dims / 2;
const uint kNoAngle = 0xFFFFFFFFu;

/// Element `d` of a head at `first`, rotated unless there is no angle.
float rotated(uint first, uint d, uint first_angle) {
  Floats x = Floats(pc.qkv);
  const float own = x.v[first + d];
  if (d >= rope_dims || first_angle == kNoAngle) return own;
  const uint pair = halves != 0 ? (d < half_dims ? d : d - half_dims) : d / 2;
  const bool is_second = halves != 0 ? d >= half_dims : (d & 1) != 0;
  const uint step = halves != 0 ? half_dims : 1;
  const float other = x.v[first + (is_second ? d - step : d + step)];
  const vec2 angle = Vec2s(pc.rope_table).v[first_angle + pair];
  return fma(own, angle.x, other * (is_second ? angle.y : -angle.y));
}

void main() {
  const uint row = gl_WorkGroupID.x;
  const uint position = Uints(pc.positions).v[row];
  const uint first_angle = position * half_dims;
  const uint q_first = row * pc.row_stride;
  const uint k_first = q_first + pc.n_heads * head_dim;
  const uint k_elements = pc.n_kv_heads * head_dim;
  const uint v_elements = has_values != 0 ? pc.n_kv_heads * v_dim : 0;

  const uint q_tasks = pc.n_heads * half_dims;
  const uint n_tasks = q_tasks + (k_elements + v_elements) / 2;

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
    const uint element = (task - q_tasks) * 2;  // of k, then v
    const bool is_v = element >= k_elements;
    const uint dim = is_v ? v_dim : head_dim;
    const uint own = is_v ? element - k_elements : element;
    const uint kv_head = own / dim;
    const uint d = own % dim;
    const uint head = k_first + element - d;
    const uint angles = is_v ? kNoAngle : first_angle;
    const float low = rotated(head, d, angles);
    const float high = rotated(head, d + 1, angles);
    const uint offset = is_v ? v_head_offset(kv_head, pc.n_kv_heads, k_type, v_type)
                             : k_head_offset(kv_head, k_type);
    write_kv(is_v ? v_type : k_type, address_add(block, offset), token, is_v, d, low, high);
  }
}
