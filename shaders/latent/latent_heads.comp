#version 460

#include "common/buffers.glsl"
#include "latent/latent_heads.h"
#include "rope_kv/kv_write.glsl"

// Keys and values of heads into KV blocks. A key's end is the same for all heads. One key per
// gl_WorkGroupID.x; its tasks, one per two neighbours of K and then of V, are spread over lanes and
// gl_WorkGroupID.y.

const uint n_still = head_dim - n_turned;

void main() {
  const uint key = pc.first_key + gl_WorkGroupID.x;
  const uvec2 block = address_add(pc.blocks, key / 16 * pc.block_bytes);
  const uint token = key % 16;
  const uint k_tasks = pc.n_heads * head_dim / 2;
  const uint n_tasks = k_tasks + pc.n_heads * v_dim / 2;
  for (uint task = gl_WorkGroupID.y * workgroup_size + gl_LocalInvocationIndex; task < n_tasks;
       task += gl_NumWorkGroups.y * workgroup_size) {
    const bool is_v = task >= k_tasks;
    const uint dim = is_v ? v_dim : head_dim;
    const uint element = (task - (is_v ? k_tasks : 0)) * 2;
    const uint head = element / dim;
    const uint d = element % dim;
    uvec2 source = pc.turned;
    uint first = key * pc.turned_stride + d - n_still;
    if (is_v) {
      source = pc.values;
      first = key * pc.stride + head * pc.value_head_stride + d;
    } else if (d < n_still) {
      source = pc.keys;
      first = key * pc.stride + head * pc.key_head_stride + d;
    }
    const float low = Floats(source).v[first];
    const float high = Floats(source).v[first + 1];
    const uint offset = is_v ? v_head_offset(head, pc.n_heads, kv_type, kv_type)
                             : k_head_offset(head, kv_type);
    write_kv(kv_type, address_add(block, offset), token, is_v, d, low, high);
  }
}
