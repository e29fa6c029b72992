#version 460
#extension GL_GOOGLE_include_directive : require

#include "common/buffers.glsl"
#include "attention_reference/attention_values.h"

const uint v_dim = head_dim;
#include "flash_attention/kv_elements.glsl"

// A workgroup sums the values of tile_rows rows (x) of a head (y) by their weights. A lane owns four
// columns and every key_groups-th quad of keys; the groups are summed at the end. workgroup_size is
// a multiple of 16 and at least head_dim / 4.
layout(local_size_x_id = 0) in;

const uint column_quads = head_dim / 4;
const uint weight_quads = workgroup_size / 4;  // of one row
const uint max_key_groups = workgroup_size / column_quads;
const uint key_groups = max_key_groups < weight_quads ? max_key_groups : weight_quads;

shared vec4 weight_tile[tile_rows * weight_quads];
shared vec4 group_sums[workgroup_size];

void main() {
  const uint lane = gl_LocalInvocationIndex;
  const uint first_row = gl_WorkGroupID.x * tile_rows;
  const uint n_tile_rows = min(tile_rows, pc.n_rows - first_row);
  const uint head = gl_WorkGroupID.y;
  const uint n_keys =
      min(pc.n_keys, Uints(pc.positions).v[first_row + n_tile_rows - 1] + 1);
  const uint column_quad = lane % column_quads;
  const uint key_group = lane / column_quads;

  const uint v_offset =
      pc.layer_offset + v_head_offset(head / group, pc.n_heads / group, k_type, v_type);
  Floats weights = Floats(address_add(pc.weights, head * pc.n_rows * pc.n_keys * 4));

  vec4 y[tile_rows];
  [[unroll]] for (uint r = 0; r < tile_rows; ++r) y[r] = vec4(0.0);
  for (uint first_key = 0; first_key < n_keys; first_key += workgroup_size) {
    const uint key = first_key + lane;
    [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
      float weight = 0.0;
      if (r < n_tile_rows && key < n_keys) weight = weights.v[(first_row + r) * pc.n_keys + key];
      weight_tile[r * weight_quads + lane / 4][lane % 4] = weight;
    }
    barrier();
    if (key_group < key_groups) {
      const uint n_tile_keys = min(workgroup_size, n_keys - first_key);
      for (uint quad = key_group; quad * 4 < n_tile_keys; quad += key_groups) {
        const uvec2 v_address =
            address_add(Uvec2s(pc.block_table).v[(first_key + quad * 4) / 16], v_offset);
        vec4 v[4];
        [[unroll]] for (uint i = 0; i < 4; ++i) {
          // A key past the end has weight 0; memory past it may hold anything, so read the last.
          const uint token = min(quad * 4 + i, n_tile_keys - 1) % 16;
          v[i] = load_v(v_type, v_address, token, column_quad);
        }
        [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
          const vec4 weight = weight_tile[r * weight_quads + quad];
          vec4 sum = y[r];
          sum = fma(vec4(weight.x), v[0], sum);
          sum = fma(vec4(weight.y), v[1], sum);
          sum = fma(vec4(weight.z), v[2], sum);
          y[r] = fma(vec4(weight.w), v[3], sum);
        }
      }
    }
    barrier();  // weight_tile is written next
  }

  [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
    group_sums[lane] = y[r];
    barrier();
    if (lane < column_quads && r < n_tile_rows) {
      vec4 sum = vec4(0.0);
      [[dont_unroll]] for (uint g = 0; g < key_groups; ++g) sum += group_sums[g * column_quads + lane];
      Vec4s(pc.y).v[((first_row + r) * pc.n_heads + head) * column_quads + lane] = sum;
    }
    barrier();
  }
}
