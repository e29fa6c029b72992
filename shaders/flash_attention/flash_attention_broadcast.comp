#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_ballot : require

#include "common/buffers.glsl"
#include "flash_attention/flash_attention.h"
#include "flash_attention/attention_item.glsl"

// flash_attention.comp for devices whose shared memory and barriers are slow (CPU drivers): a workgroup
// is one subgroup of 8, 16 or 32 lanes, everything stays in registers, and what all lanes need is
// broadcast from the lane that holds it.
//   scores   lane = key, kKeysPerLane of them; q of 8 dimensions is spread over lanes
//   output   lane = 4 columns of every 4 * workgroup_size; weights of a key a lane are broadcast
layout(local_size_x_id = 0) in;

const uint kKeysPerLane = 4;
const uint tile_keys = workgroup_size * kKeysPerLane;
const uint column_quads = value_dim / 4;
const uint column_chunks = (column_quads + workgroup_size - 1) / workgroup_size;
const uint blocks_at_once = (workgroup_size + 15) / 16;  // that the keys of one broadcast lie in
const uint head_tiles = (group + tile_heads - 1) / tile_heads;
// Of a workgroup: vec4 y [tile_rows][column_chunks][lane], and vec2 (maximum, sum) [tile_rows][lane].
const uint carried_y_bytes = tile_rows * column_chunks * workgroup_size * 16;
const uint carried_bytes = carried_y_bytes + tile_rows * workgroup_size * 8;

/// Elements [8 * octet, 8 * octet + 8) of the key of `token`, whose first unit is at `address`.
void load_k(uvec2 address, uint token, uint octet, out float k[8]) {
  Uvec2s halves = Uvec2s(address);  // a token's 16-byte units lie 16 units apart
  vec4 quads[2];
  if (kv_quantised(k_type)) {
    load_quantised_k(k_type, address, token, octet, quads[0], quads[1]);
  } else {
    [[unroll]] for (uint i = 0; i < 2; ++i) {
      quads[i] = k_type == KV_F32 ? uintBitsToFloat(uvec4(halves.v[octet * 64 + i * 32],
                                                          halves.v[octet * 64 + i * 32 + 1]))
                                  : kv_quad(k_type, halves.v[octet * 32 + i]);
    }
  }
  [[unroll]] for (uint d = 0; d < 8; ++d) k[d] = quads[d / 4][d % 4];
}

void main() {
  const uint lane = gl_SubgroupInvocationID;
  Item item = load_item(gl_WorkGroupID.x);
  const uint begin = take_keys(item, tile_keys);
  if (is_over(item, begin)) return;
  const uint head_tile = pc.first_head_tile + gl_WorkGroupID.y;
  const uint kv_head = head_tile / head_tiles;
  const uint head_in_group = head_tile % head_tiles * tile_heads;
  const uint first_head = kv_head * group + head_in_group;
  const uint n_tile_heads = min(tile_heads, group - head_in_group);
  const uint n_heads = pc.n_kv_heads * group;

  const uint k_offset = pc.layer_offset + k_head_offset(kv_head, k_type);
  const uint first_table = item.seq * pc.table_stride;
  const uint v_offset = pc.layer_offset + value_head_offset(kv_head);

  // A row past the end of the item does the work of its first row, sees no key and is not written.
  uint q_first[tile_rows];
  uint row_begin[tile_rows];
  uint row_end[tile_rows];
  float row_max[tile_rows];
  precise float row_sum[tile_rows];  // over this lane's keys
  vec4 y[tile_rows * column_chunks];
  [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
    const uint token = r / tile_heads;
    const uint head = r % tile_heads;
    const bool valid = token < item.n_rows && head < n_tile_heads;
    const uint row = item.first_row + (valid ? token : 0);
    q_first[r] = row * pc.q_stride + (first_head + (valid ? head : 0)) * head_dim + lane % 8;
    const uint position = Uints(pc.positions).v[row];
    row_begin[r] = first_visible_key(item, position);
    row_end[r] = valid ? min(item.kv_end, position + 1) : 0;
    row_max[r] = kNoKey;
    row_sum[r] = 0.0;
    [[unroll]] for (uint c = 0; c < column_chunks; ++c) y[r * column_chunks + c] = vec4(0.0);
  }
  if (goes_on()) {
    const uvec2 carried = carried_address(carried_bytes);
    const uvec2 carried_stats = address_add(carried, carried_y_bytes);
    [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
      const vec2 stats = Vec2s(carried_stats).v[r * workgroup_size + lane];
      row_max[r] = stats.x;
      row_sum[r] = stats.y;
    }
    [[unroll]] for (uint i = 0; i < tile_rows * column_chunks; ++i) {
      y[i] = Vec4s(carried).v[i * workgroup_size + lane];
    }
  }

  // In place of a key that the item does not have, one that it has is read, and weighs 0.
  const uint first_present = window != 0 ? item.kv_begin : 0;
  for (uint first_key = begin; first_key < item.kv_end; first_key += tile_keys) {
    uvec2 k_address[kKeysPerLane];
    [[unroll]] for (uint i = 0; i < kKeysPerLane; ++i) {
      const uint key = first_key + i * workgroup_size + lane;
      const uint block = first_table + clamp(key, first_present, item.kv_end - 1) / 16;
      k_address[i] = address_add(Uvec2s(pc.block_table).v[block], k_offset + key % 16 * 16);
    }

    float weight[tile_rows * kKeysPerLane];  // scores at first
    [[unroll]] for (uint i = 0; i < tile_rows * kKeysPerLane; ++i) weight[i] = 0.0;
    for (uint octet = 0; octet < head_dim / 8; ++octet) {
      float q[tile_rows];
      [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
        q[r] = Floats(pc.q).v[q_first[r] + octet * 8] * (pc.scale * kLog2E);
      }
      [[unroll]] for (uint i = 0; i < kKeysPerLane; ++i) {
        float k[8];
        load_k(k_address[i], (first_key + i * workgroup_size + lane) % 16, octet, k);
        [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
          [[unroll]] for (uint d = 0; d < 8; ++d) {
            weight[r * kKeysPerLane + i] =
                fma(subgroupBroadcast(q[r], d), k[d], weight[r * kKeysPerLane + i]);
          }
        }
      }
    }

    [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
      float lane_max = row_max[r];
      [[unroll]] for (uint i = 0; i < kKeysPerLane; ++i) {
        const uint key = first_key + i * workgroup_size + lane;
        const bool visible = !is_behind(key, row_begin[r]) && key < row_end[r];
        const float score =
            capped_score(clamp(weight[r * kKeysPerLane + i], -kScoreLimit, kScoreLimit));
        weight[r * kKeysPerLane + i] = visible ? score : kNoKey;
        lane_max = max(lane_max, weight[r * kKeysPerLane + i]);
      }
      float new_max = lane_max;
      [[unroll]] for (uint l = 0; l < workgroup_size; ++l) {
        new_max = max(new_max, subgroupBroadcast(lane_max, l));
      }
      const float rescale = softmax_weight(row_max[r], new_max);
      row_max[r] = new_max;
      row_sum[r] *= rescale;
      [[unroll]] for (uint c = 0; c < column_chunks; ++c) y[r * column_chunks + c] *= rescale;
      [[unroll]] for (uint i = 0; i < kKeysPerLane; ++i) {
        weight[r * kKeysPerLane + i] = softmax_weight(weight[r * kKeysPerLane + i], new_max);
        row_sum[r] += weight[r * kKeysPerLane + i];
      }
    }

    const uint n_keys = min(tile_keys, item.kv_end - first_key);
    for (uint first = 0; first < n_keys; first += workgroup_size) {
      uvec2 v_address[blocks_at_once];
      [[unroll]] for (uint b = 0; b < blocks_at_once; ++b) {
        const uint key = max(first_key + min(first + b * 16, n_keys - 1), first_present);
        v_address[b] = address_add(Uvec2s(pc.block_table).v[first_table + key / 16], v_offset);
      }
      [[unroll]] for (uint j = 0; j < workgroup_size; ++j) {
        // A key past the end has weight 0; memory past it may hold anything, so read the last.
        const uint key = max(first_key + min(first + j, n_keys - 1), first_present);
        const uint token = key % 16;
        vec4 v[column_chunks];
        [[unroll]] for (uint c = 0; c < column_chunks; ++c) {
          v[c] = load_value(v_address[j / 16], token,
                            min(c * workgroup_size + lane, column_quads - 1));
        }
        [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
          const float w = subgroupBroadcast(weight[r * kKeysPerLane], j);
          [[unroll]] for (uint c = 0; c < column_chunks; ++c) {
            y[r * column_chunks + c] = fma(vec4(w), v[c], y[r * column_chunks + c]);
          }
        }
      }
      [[unroll]] for (uint r = 0; r < tile_rows; ++r) {  // the next keys' weights move up
        [[unroll]] for (uint i = 0; i + 1 < kKeysPerLane; ++i) {
          weight[r * kKeysPerLane + i] = weight[r * kKeysPerLane + i + 1];
        }
      }
    }
  }

  if (pauses(item)) {
    const uvec2 carried = carried_address(carried_bytes);
    const uvec2 carried_stats = address_add(carried, carried_y_bytes);
    [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
      Vec2s(carried_stats).v[r * workgroup_size + lane] = vec2(row_max[r], row_sum[r]);
    }
    [[unroll]] for (uint i = 0; i < tile_rows * column_chunks; ++i) {
      Vec4s(carried).v[i * workgroup_size + lane] = y[i];
    }
    return;
  }

  [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
    const uint token = r / tile_heads;
    const uint head = r % tile_heads;
    float sum = 0.0;
    [[unroll]] for (uint l = 0; l < workgroup_size; ++l) sum += subgroupBroadcast(row_sum[r], l);
    if (token >= item.n_rows || head >= n_tile_heads) continue;
    const bool is_partial = item.partial != 0xFFFFFFFFu;
    const uint slot_head = (item.partial + token) * n_heads + first_head + head;
    const uint first_column = is_partial ? slot_head * column_quads
                                         : (item.first_row + token) * pc.y_stride / 4 +
                                               (first_head + head) * column_quads;
    float divisor = is_partial || sum == 0.0 ? 1.0 : sum;
    if (has_sinks != 0 && !is_partial) {
      divisor = sum + sink_weight(Floats(pc.sinks).v[first_head + head], row_max[r]);
    }
    [[unroll]] for (uint c = 0; c < column_chunks; ++c) {
      const uint column = c * workgroup_size + lane;
      if (column >= column_quads) continue;
      const uint at = first_column + column;
      const vec4 value = y[r * column_chunks + c];
      if (is_partial) {
        Vec4s(pc.partial_y).v[at] = value;
      } else {
        Vec4s(pc.y).v[at] = value / divisor;
      }
    }
    if (is_partial && lane == 0) Vec2s(pc.partial_stats).v[slot_head] = vec2(row_max[r], sum);
  }
}
