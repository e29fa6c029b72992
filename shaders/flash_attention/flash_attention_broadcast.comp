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
const uint column_chunks = (column_quads + workgroup_size - 1) / workgroup_size;
const uint blocks_at_once = (workgroup_size + 15) / 16;  // that the keys of one broadcast lie in
// Of a workgroup: vec4 y [tile_rows][column_chunks][lane], and vec2 (maximum, sum) [tile_rows][lane].
const uint carried_y_bytes = tile_rows * column_chunks * workgroup_size * 16;
const uint carried_bytes = carried_y_bytes + tile_rows * workgroup_size * 8;

// Of each row: keys [row_begin, row_end) are visible to it.
uint q_first[tile_rows];  // where this lane's numbers of q begin
uint row_begin[tile_rows];
uint row_end[tile_rows];
float row_max[tile_rows];
float row_sum[tile_rows];                // over this lane's keys
vec4 y[tile_rows * column_chunks];       // this lane's columns
float weight[tile_rows * kKeysPerLane];  // of this lane's keys of a KV tile; scores at first

/// The state before any key. A row past the end of the item does the work of its first row, sees no key
/// and is not written.
void begin_rows(Item item, HeadTile heads, uint lane) {
  [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
    const bool valid = has_row(item, heads, r);
    const uint row = item.first_row + (valid ? r / tile_heads : 0);
    const uint head = heads.first_head + (valid ? r % tile_heads : 0);
    q_first[r] = row * pc.q_stride + head * head_dim + lane % 8;
    const uvec2 keys = visible_keys(item, row);
    row_begin[r] = keys.x;
    row_end[r] = valid ? keys.y : 0;
    row_max[r] = kNoKey;
    row_sum[r] = 0.0;
    [[unroll]] for (uint c = 0; c < column_chunks; ++c) y[r * column_chunks + c] = vec4(0.0);
  }
}

void load_carried(uint lane) {
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

void store_carried(uint lane) {
  const uvec2 carried = carried_address(carried_bytes);
  const uvec2 carried_stats = address_add(carried, carried_y_bytes);
  [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
    Vec2s(carried_stats).v[r * workgroup_size + lane] = vec2(row_max[r], row_sum[r]);
  }
  [[unroll]] for (uint i = 0; i < tile_rows * column_chunks; ++i) {
    Vec4s(carried).v[i * workgroup_size + lane] = y[i];
  }
}

/// In place of a key that the item does not have, one that it has is read, and weighs 0.
uint first_present(Item item) { return window != 0 ? item.kv_begin : 0; }

/// The address at `offset` in the block of a key.
uvec2 block_address(Item item, uint key, uint offset) {
  const uint block = item.seq * pc.table_stride + key / 16;
  return address_add(Uvec2s(pc.block_table).v[block], offset);
}

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

/// Every row's scores with this lane's keys of a KV tile into weight.
void score_keys(Item item, uint first_key, uint k_offset, uint lane) {
  uvec2 k_address[kKeysPerLane];
  [[unroll]] for (uint i = 0; i < kKeysPerLane; ++i) {
    const uint key = first_key + i * workgroup_size + lane;
    k_address[i] = block_address(item, clamp(key, first_present(item), item.kv_end - 1),
                                 k_offset + key % 16 * 16);
  }
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
}

/// Caps row `r`'s scores of a KV tile's visible keys and makes those of others kNoKey. Returns the row's
/// maximum over these and all keys before.
float mask_scores(uint r, uint first_key, uint lane) {
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
  return new_max;
}

/// Takes a KV tile's scores into each row's maximum and sum, rescales y, and turns scores into weights.
void softmax(uint first_key, uint lane) {
  [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
    const float new_max = mask_scores(r, first_key, lane);
    const float rescale = softmax_weight(row_max[r], new_max);
    row_max[r] = new_max;
    precise float sum = row_sum[r] * rescale;
    [[unroll]] for (uint c = 0; c < column_chunks; ++c) y[r * column_chunks + c] *= rescale;
    [[unroll]] for (uint i = 0; i < kKeysPerLane; ++i) {
      weight[r * kKeysPerLane + i] = softmax_weight(weight[r * kKeysPerLane + i], new_max);
      sum += weight[r * kKeysPerLane + i];
    }
    row_sum[r] = sum;
  }
}

/// y += weights * V of the workgroup_size keys from `first` on of a KV tile: the first key of each lane.
void add_lanes_values(Item item, uint first_key, uint first, uint n_keys, uint v_offset, uint lane) {
  uvec2 v_address[blocks_at_once];
  [[unroll]] for (uint b = 0; b < blocks_at_once; ++b) {
    const uint key = max(first_key + min(first + b * 16, n_keys - 1), first_present(item));
    v_address[b] = block_address(item, key, v_offset);
  }
  [[unroll]] for (uint j = 0; j < workgroup_size; ++j) {
    // A key past the end has weight 0; memory past it may hold anything, so read the last.
    const uint key = max(first_key + min(first + j, n_keys - 1), first_present(item));
    vec4 v[column_chunks];
    [[unroll]] for (uint c = 0; c < column_chunks; ++c) {
      const uint column = min(c * workgroup_size + lane, column_quads - 1);
      v[c] = load_value(v_address[j / 16], key % 16, column);
    }
    [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
      const float w = subgroupBroadcast(weight[r * kKeysPerLane], j);
      [[unroll]] for (uint c = 0; c < column_chunks; ++c) {
        y[r * column_chunks + c] = fma(vec4(w), v[c], y[r * column_chunks + c]);
      }
    }
  }
}

/// y += weights * V of a KV tile, one key of each lane at a time.
void add_values(Item item, uint first_key, uint v_offset, uint lane) {
  const uint n_keys = min(tile_keys, item.kv_end - first_key);
  for (uint first = 0; first < n_keys; first += workgroup_size) {
    add_lanes_values(item, first_key, first, n_keys, v_offset, lane);
    [[unroll]] for (uint r = 0; r < tile_rows; ++r) {  // the next keys' weights move up
      [[unroll]] for (uint i = 0; i + 1 < kKeysPerLane; ++i) {
        weight[r * kKeysPerLane + i] = weight[r * kKeysPerLane + i + 1];
      }
    }
  }
}

/// Without `continue`, behind which loops are not unrolled (NIR), so that y would be an array in memory all along.
void write_out(Item item, HeadTile heads, uint lane) {
  [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
    float sum = 0.0;
    [[unroll]] for (uint l = 0; l < workgroup_size; ++l) sum += subgroupBroadcast(row_sum[r], l);
    if (has_row(item, heads, r)) {
      [[unroll]] for (uint c = 0; c < column_chunks; ++c) {
        const uint column = c * workgroup_size + lane;
        if (column < column_quads) {
          write_quad(item, heads, r, column, y[r * column_chunks + c], vec2(row_max[r], sum));
        }
      }
    }
  }
}

void main() {
  const uint lane = gl_SubgroupInvocationID;
  Item item = load_item(gl_WorkGroupID.x);
  const uint begin = take_keys(item, tile_keys);
  if (is_over(item, begin)) return;
  const HeadTile heads = load_head_tile();
  const uint k_offset = pc.layer_offset + k_head_offset(heads.kv_head, k_type);
  const uint v_offset = pc.layer_offset + value_head_offset(heads.kv_head);

  begin_rows(item, heads, lane);
  if (goes_on()) load_carried(lane);
  for (uint first_key = begin; first_key < item.kv_end; first_key += tile_keys) {
    score_keys(item, first_key, k_offset, lane);
    softmax(first_key, lane);
    add_values(item, first_key, v_offset, lane);
  }
  if (pauses(item)) {
    store_carried(lane);
    return;
  }
  write_out(item, heads, lane);
}
