#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require

#include "common/buffers.glsl"
#include "flash_attention/flash_attention_subgroup.h"
#include "flash_attention/attention_item.glsl"
#include "flash_attention/kv_octets.glsl"

// flash_attention.comp for items of one token, for GPUs: the rows of a tile are heads of one kv head. Subgroups share
// the keys out, each has a softmax of its own, and what they have is merged at the end: until then none waits for
// another. For each subgroup_size keys of a subgroup:
//   scores   lane = key                      `flight` octets of K at once; q is the same for all lanes
//   softmax  lane = key                      weights into weight_tile
//   output   lane = (8 columns, key group)   y += weight * v, `flight` octets of V at once
// The first V is under way before the first K is looked at, the next tile's entries of the block table a tile ahead.
//
// A row's result depends on its q, its keys, kv_begin and kv_end, not on its tile. It is none that flash_attention.comp
// has, so --invariant goes without this kernel.
layout(local_size_x_id = 0) in;

const uint n_subgroups = workgroup_size / subgroup_size;
const uint tile_blocks = subgroup_size > 16 ? subgroup_size / 16 : 1;  // of a subgroup's keys
const uint key_octets = head_dim / 8;
const uint value_octets = value_dim / 8;
const uint chunks = (value_octets + column_lanes - 1) / column_lanes;  // of value_octets, one of a lane each
const uint key_groups = subgroup_size / column_lanes;
const uint group_keys = subgroup_size / key_groups;
const uint value_flight = flight < group_keys ? flight : group_keys;
const uint row_quads = (tile_rows + 3) / 4;
const uint value_type = latent_dim != 0 ? k_type : v_type;
// Of a workgroup: vec4 y [tile_rows][chunks][2][lane], and vec2 (maximum, sum) [tile_rows][lane].
const uint y_quads = tile_rows * chunks * 2;
const uint carried_y_bytes = y_quads * workgroup_size * 16;
const uint carried_bytes = carried_y_bytes + tile_rows * workgroup_size * 8;

shared vec4 q_tile[shared_q != 0 ? tile_rows * (head_dim / 4) : 1];
shared vec4 weight_tile[n_subgroups * row_quads * subgroup_size];
shared vec2 subgroup_stats[n_subgroups * tile_rows];
shared vec4 y_tile[merge_rows * chunks * 2 * workgroup_size];

layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Queries { vec4 v[]; };

uvec2 blocks[tile_blocks];       // addresses of this layer in the blocks of the subgroup's keys
uvec2 next_blocks[tile_blocks];  // the same of its next tile
float scores[tile_rows];         // of this lane's key, then its weights
float row_max[tile_rows];        // of the subgroup's keys
float row_sum[tile_rows];        // of this lane's keys
vec4 y[y_quads];                 // of this lane's columns, over the keys of its group
Octet next_keys[flight];
Octet next_values[value_flight];

uint lane_octet(uint chunk) {
  const uint octet = chunk * column_lanes + gl_SubgroupInvocationID % column_lanes;
  return value_octets % column_lanes == 0 ? octet : min(octet, value_octets - 1);
}
uint key_group() { return gl_SubgroupInvocationID / column_lanes; }
uint lane_index() { return gl_SubgroupID * subgroup_size + gl_SubgroupInvocationID; }

/// The largest of all lanes', in each.
float subgroup_max(float value) {
  [[unroll]] for (uint d = 1; d < subgroup_size; d *= 2) value = max(value, subgroupShuffleXor(value, d));
  return value;
}
float subgroup_sum(float value) {
  [[unroll]] for (uint d = 1; d < subgroup_size; d *= 2) value += subgroupShuffleXor(value, d);
  return value;
}

void begin_rows() {
  [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
    row_max[r] = kNoKey;
    row_sum[r] = 0.0;
  }
  [[unroll]] for (uint i = 0; i < y_quads; ++i) y[i] = vec4(0.0);
}

void load_carried() {
  const uvec2 carried = carried_address(carried_bytes);
  const uvec2 carried_stats = address_add(carried, carried_y_bytes);
  [[unroll]] for (uint i = 0; i < y_quads; ++i) y[i] = Vec4s(carried).v[i * workgroup_size + lane_index()];
  [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
    const vec2 stats = Vec2s(carried_stats).v[r * workgroup_size + lane_index()];
    row_max[r] = stats.x;
    row_sum[r] = stats.y;
  }
}

void store_carried() {
  const uvec2 carried = carried_address(carried_bytes);
  const uvec2 carried_stats = address_add(carried, carried_y_bytes);
  [[unroll]] for (uint i = 0; i < y_quads; ++i) Vec4s(carried).v[i * workgroup_size + lane_index()] = y[i];
  [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
    Vec2s(carried_stats).v[r * workgroup_size + lane_index()] = vec2(row_max[r], row_sum[r]);
  }
}

/// Entries of the block table for the subgroup's keys from `first_key` on; outside of the item's keys, ones in them.
void load_blocks(Item item, uint first_key) {
  const uvec2 table = address_add(pc.block_table, item.seq * pc.table_stride * 8);
  [[unroll]] for (uint b = 0; b < tile_blocks; ++b) {
    uint block = min(first_key / 16 + b, (item.kv_end - 1) / 16);
    if (window != 0) block = max(block, item.kv_begin / 16);
    next_blocks[b] = KvPairs(address_add(table, block * 8)).v[0];
  }
}

/// The block of `key` of the subgroup's keys.
uvec2 block_of(uint key) {
  uvec2 block = blocks[0];
  [[unroll]] for (uint b = 1; b < tile_blocks; ++b) {
    if (key / 16 == b) block = blocks[b];
  }
  return block;
}

/// V of this lane's columns in a chunk, of its group's keys from number `first` on.
void load_values(uint chunk, uint first, uint first_key, uint v_offset) {
  const uint octet = lane_octet(chunk);
  [[unroll]] for (uint i = 0; i < value_flight; ++i) {
    const uint key = (first + i) * key_groups;  // of the first group: the others' are in the same block
    const uint token = (subgroup_size < 16 ? first_key % 16 : 0) + key_group();
    const uvec2 head = address_add(block_of(key), v_offset);
    next_values[i] = latent_dim != 0 ? load_octet_of_k(place_of_k(head, token, octet), key % 16, 0)
                                     : load_octet_of_v(place_of_v(head, token, octet), key % 16);
  }
}

/// Those of keys that are none of the item's become 0: memory may hold anything there.
void clear_values(uint first, Item item, uint first_key) {
  [[unroll]] for (uint i = 0; i < value_flight; ++i) {
    const uint key = first_key + (first + i) * key_groups + key_group();
    if (key >= item.kv_end || is_behind(key, item.kv_begin)) next_values[i] = Octet(uvec4(0), uvec4(0));
  }
}

/// Four numbers of a row's q, the same for all lanes: by loads of one address, which some GPUs have scalar or block
/// loads for, or from shared memory.
vec4 query_quad(Item item, HeadTile heads, uint row, uint quad) {
  if (shared_q != 0) return q_tile[row * (head_dim / 4) + quad];
  const uint head = heads.first_head + min(row, heads.n_heads - 1);
  return Queries(address_add(pc.q, (item.first_row * pc.q_stride + head * head_dim) * 4)).v[quad];
}

void load_q_tile(Item item, HeadTile heads) {
  for (uint i = lane_index(); i < tile_rows * (head_dim / 4); i += workgroup_size) {
    const uint row = min(i / (head_dim / 4), heads.n_heads - 1);
    q_tile[i] = load_q(item, heads, row, i % (head_dim / 4));
  }
  barrier();
}

/// K of this lane's key from octet `first` on.
void load_keys(OctetPlace place, uint first) {
  [[unroll]] for (uint i = 0; i < flight; ++i) {
    next_keys[i] = load_octet_of_k(place, 0, key_octets % flight == 0 ? first + i : min(first + i, key_octets - 1));
  }
}

/// Adds what these are to every row's score with the key.
void add_loaded_keys(HeadTile heads, Item item, uint first) {
  [[unroll]] for (uint i = 0; i < flight; ++i) {
    const uint octet = first + i;
    if (key_octets % flight != 0 && octet >= key_octets) continue;
    vec4 low, high;
    decode_octet(k_type, next_keys[i], low, high);
    const float scale = kv_quantised(k_type) ? octet_scale(next_keys[i], octet) : 1.0;
    [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
      const vec4 q_low = query_quad(item, heads, r, octet * 2);
      const vec4 q_high = query_quad(item, heads, r, octet * 2 + 1);
      float s = kv_quantised(k_type) ? 0.0 : scores[r];
      s = fma(q_low.x, low.x, s);
      s = fma(q_low.y, low.y, s);
      s = fma(q_low.z, low.z, s);
      s = fma(q_low.w, low.w, s);
      s = fma(q_high.x, high.x, s);
      s = fma(q_high.y, high.y, s);
      s = fma(q_high.z, high.z, s);
      s = fma(q_high.w, high.w, s);
      scores[r] = kv_quantised(k_type) ? fma(scale, s, scores[r]) : s;
    }
  }
}

/// Scores of this lane's key, neither scaled nor masked. The first of V are loaded behind the first of K.
void score_keys(HeadTile heads, Item item, uint first_key, uint k_offset, uint v_offset) {
  // Behind the last key it is that one's: memory may hold anything there.
  const uint token = min(first_key + gl_SubgroupInvocationID, item.kv_end - 1) % 16;
  const OctetPlace place = place_of_k(address_add(block_of(gl_SubgroupInvocationID), k_offset), token, 0);
  [[unroll]] for (uint r = 0; r < tile_rows; ++r) scores[r] = 0.0;
  load_keys(place, 0);
  load_values(0, 0, first_key, v_offset);
  for (uint turn = 0; turn < key_octets; turn += unroll) {
    [[unroll]] for (uint part = 0; part < unroll; part += flight) {
      const uint first = turn + part;
      if (key_octets % unroll != 0 && first >= key_octets) continue;
      if (first > 0) load_keys(place, first);
      add_loaded_keys(heads, item, first);
    }
  }
}

/// Takes the scores of the subgroup's keys into each row's maximum and sum, rescales y, and turns scores into
/// weights for add_values.
void softmax(bool visible) {
  [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
    const float score = capped_score(clamp(scores[r] * (pc.scale * kLog2E), -kScoreLimit, kScoreLimit));
    scores[r] = visible ? score : kNoKey;
    const float new_max = max(row_max[r], subgroup_max(scores[r]));
    const float rescale = softmax_weight(row_max[r], new_max);
    row_max[r] = new_max;
    scores[r] = softmax_weight(scores[r], new_max);
    row_sum[r] = fma(row_sum[r], rescale, scores[r]);
    [[unroll]] for (uint i = 0; i < chunks * 2; ++i) y[r * chunks * 2 + i] *= rescale;
  }
  subgroupBarrier();  // add_values has read those before
  [[unroll]] for (uint i = 0; i < row_quads; ++i) {
    vec4 weights = vec4(0.0);
    [[unroll]] for (uint r = 0; r < 4; ++r) {
      if (i * 4 + r < tile_rows) weights[r] = scores[i * 4 + r];
    }
    weight_tile[(gl_SubgroupID * row_quads + i) * subgroup_size + gl_SubgroupInvocationID] = weights;
  }
  subgroupBarrier();
}

/// y += weights * V of a chunk, of the group's keys from number `first` on.
void add_loaded_values(uint chunk, uint first) {
  [[unroll]] for (uint i = 0; i < value_flight; ++i) {
    const uint key = (first + i) * key_groups + key_group();
    vec4 low, high;
    decode_octet(value_type, next_values[i], low, high);
    const float scale = kv_quantised(value_type) ? octet_scale(next_values[i], lane_octet(chunk)) : 1.0;
    [[unroll]] for (uint q = 0; q < row_quads; ++q) {
      vec4 weights = weight_tile[(gl_SubgroupID * row_quads + q) * subgroup_size + key];
      if (kv_quantised(value_type)) weights *= scale;
      [[unroll]] for (uint r = q * 4; r < min(q * 4 + 4, tile_rows); ++r) {
        const uint at = (r * chunks + chunk) * 2;
        y[at] = fma(vec4(weights[r % 4]), low, y[at]);
        y[at + 1] = fma(vec4(weights[r % 4]), high, y[at + 1]);
      }
    }
  }
}

/// Of which the first are loaded.
void add_values(Item item, uint first_key, uint v_offset) {
  const bool is_edge = first_key + subgroup_size > item.kv_end || is_behind(first_key, item.kv_begin);
  [[unroll]] for (uint chunk = 0; chunk < chunks; ++chunk) {
    [[unroll]] for (uint first = 0; first < group_keys; first += value_flight) {
      if (chunk > 0 || first > 0) load_values(chunk, first, first_key, v_offset);
      if (is_edge) clear_values(first, item, first_key);
      add_loaded_values(chunk, first);
    }
  }
}

/// Four columns of rows [first, first + merge_rows) by each lane, from what every subgroup and key group has of them.
void write_rows(Item item, HeadTile heads, uint first) {
  const uint row_units = chunks * 2 * workgroup_size;
  for (uint i = lane_index(); i < merge_rows * column_quads; i += workgroup_size) {
    const uint row = first + i / column_quads;
    const uint quad = i % column_quads;
    if (!has_row(item, heads, row)) continue;
    float maximum = kNoKey;
    for (uint s = 0; s < n_subgroups; ++s) maximum = max(maximum, subgroup_stats[s * tile_rows + row].x);
    const uint chunk = quad / 2 / column_lanes;
    const uint unit = (row - first) * row_units + (chunk * 2 + quad % 2) * workgroup_size + quad / 2 % column_lanes;
    vec4 value = vec4(0.0);
    float sum = 0.0;
    for (uint s = 0; s < n_subgroups; ++s) {
      const vec2 stats = subgroup_stats[s * tile_rows + row];
      const float weight = softmax_weight(stats.x, maximum);
      vec4 part = vec4(0.0);
      [[unroll]] for (uint g = 0; g < key_groups; ++g) part += y_tile[unit + s * subgroup_size + g * column_lanes];
      value = fma(vec4(weight), part, value);
      sum = fma(weight, stats.y, sum);
    }
    write_quad(item, heads, row, quad, value, vec2(maximum, sum));
  }
}

void write_out(Item item, HeadTile heads) {
  [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
    const float sum = subgroup_sum(row_sum[r]);
    if (subgroupElect()) subgroup_stats[gl_SubgroupID * tile_rows + r] = vec2(row_max[r], sum);
  }
  [[unroll]] for (uint first = 0; first < tile_rows; first += merge_rows) {
    if (first > 0) barrier();
    [[unroll]] for (uint i = 0; i < merge_rows * chunks * 2; ++i) {
      const uint at = first * chunks * 2 + i;
      if (at < y_quads) y_tile[i * workgroup_size + lane_index()] = y[at];
    }
    barrier();
    write_rows(item, heads, first);
  }
}

void main() {
  Item item = load_item(gl_WorkGroupID.x);
  const uint begin = take_keys(item, workgroup_size);
  if (is_over(item, begin)) return;
  const HeadTile heads = load_head_tile();
  const uint k_offset = pc.layer_offset + k_head_offset(heads.kv_head, k_type);
  const uint v_offset = pc.layer_offset + value_head_offset(heads.kv_head);
  const uvec2 keys = visible_keys(item, item.first_row);

  load_blocks(item, begin + gl_SubgroupID * subgroup_size);
  if (shared_q != 0) load_q_tile(item, heads);
  begin_rows();
  if (goes_on()) load_carried();
  // As often in every subgroup: lavapipe 26 takes a subgroup's barrier for the workgroup's. One whose keys are all behind
  // the last adds nothing.
  for (uint tile = begin; tile < item.kv_end; tile += workgroup_size) {
    const uint first_key = tile + gl_SubgroupID * subgroup_size;
    [[unroll]] for (uint b = 0; b < tile_blocks; ++b) blocks[b] = next_blocks[b];
    load_blocks(item, first_key + workgroup_size);
    score_keys(heads, item, first_key, k_offset, v_offset);
    const uint key = first_key + gl_SubgroupInvocationID;
    softmax(!is_behind(key, keys.x) && key < keys.y);
    add_values(item, first_key, v_offset);
  }
  if (pauses(item)) {
    store_carried();
    return;
  }
  write_out(item, heads);
}
