#version 460
#extension GL_GOOGLE_include_directive : require

#include "common/buffers.glsl"
#include "attention_reference/attention_scores.h"

const uint v_dim = head_dim;
#include "flash_attention/kv_elements.glsl"
#include "flash_attention/online_softmax.glsl"

// A workgroup scores tile_rows rows of a head (z) with workgroup_size keys, one a lane, as
// flash_attention.comp does, and writes all of it; kNoKey where a row does not see the key.
layout(local_size_x_id = 0) in;

const uint column_quads = head_dim / 4;

shared vec4 q_tile[tile_rows * column_quads];

void main() {
  const uint lane = gl_LocalInvocationIndex;
  const uint key = gl_WorkGroupID.x * workgroup_size + lane;
  const uint first_row = gl_WorkGroupID.y * tile_rows;
  const uint n_tile_rows = min(tile_rows, pc.n_rows - first_row);
  const uint head = gl_WorkGroupID.z;

  for (uint i = lane; i < tile_rows * column_quads; i += workgroup_size) {
    const uint row = first_row + min(i / column_quads, n_tile_rows - 1);
    const vec4 q =
        Vec4s(pc.q).v[(row * pc.q_stride + head * head_dim) / 4 + i % column_quads];
    q_tile[i] = q * (pc.scale * kLog2E);
  }
  barrier();
  if (key >= pc.n_keys) return;

  float score[tile_rows];
  [[unroll]] for (uint r = 0; r < tile_rows; ++r) score[r] = 0.0;
  const uint last_position = Uints(pc.positions).v[first_row + n_tile_rows - 1];
  if (gl_WorkGroupID.x * workgroup_size <= last_position) {
    const uvec2 k_address =
        address_add(Uvec2s(pc.block_table).v[key / 16],
                    pc.layer_offset + k_head_offset(head / group, k_type) + key % 16 * 16);
    for (uint octet = 0; octet < head_dim / 8; ++octet) {
      vec4 low, high;
      load_k(k_type, k_address, key % 16, octet, low, high);
      [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
        const vec4 q_low = q_tile[r * column_quads + octet * 2];
        const vec4 q_high = q_tile[r * column_quads + octet * 2 + 1];
        float s = score[r];
        s = fma(q_low.x, low.x, s);
        s = fma(q_low.y, low.y, s);
        s = fma(q_low.z, low.z, s);
        s = fma(q_low.w, low.w, s);
        s = fma(q_high.x, high.x, s);
        s = fma(q_high.y, high.y, s);
        s = fma(q_high.z, high.z, s);
        score[r] = fma(q_high.w, high.w, s);
      }
    }
  }
  Floats scores = Floats(address_add(pc.scores, head * pc.n_rows * pc.n_keys * 4));
  [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
    if (r >= n_tile_rows) continue;
    const uint row = first_row + r;
    const bool is_visible = key <= Uints(pc.positions).v[row];
    scores.v[row * pc.n_keys + key] =
        is_visible ? clamp(score[r], -kScoreLimit, kScoreLimit) : kNoKey;
  }
}
