#version 460

#include "common/buffers.glsl"
#include "latent/latent_rows.h"

const uint v_dim = head_dim;
#include "flash_attention/kv_elements.glsl"

// What is kept of a sequence's tokens, as rows of floats. A workgroup takes some eights of numbers of a
// block's 16 tokens: neighbouring lanes read neighbouring tokens, as they lie.

void main() {
  const uint token = gl_LocalInvocationIndex % 16;
  const uint octet = gl_WorkGroupID.y * (workgroup_size / 16) + gl_LocalInvocationIndex / 16;
  const uint key = gl_WorkGroupID.x * 16 + token;
  if (octet >= head_dim / 8 || key >= pc.n_keys) return;
  const uvec2 block = address_add(Uvec2s(pc.block_table).v[gl_WorkGroupID.x], pc.layer_offset);
  vec4 low, high;
  load_k(k_type, address_add(block, token * 16), token, octet, low, high);
  const uint at = (key * head_dim + octet * 8) / 4;
  Vec4s(pc.y).v[at] = low;
  Vec4s(pc.y).v[at + 1] = high;
}
