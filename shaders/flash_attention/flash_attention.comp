#version 460
#extension GL_GOOGLE_include_directive : require

#include "common/buffers.glsl"
#include "flash_attention/flash_attention.h"
#include "flash_attention/attention_item.glsl"

// One workgroup per (item, tile of heads of one kv head). A tile has `tile_rows` rows, row = token *
// tile_heads + head. For each KV tile of one key per lane:
//   scores   lane = key            score of every row with it, into weight_tile
//   softmax  lane = (row, slice)   running maximum and sum, scores -> weights
//   output   lane = (4 columns, key group)   y += weight * v, key groups summed at the end
// workgroup_size is a power of two, at least 16, value_dim / 4 and 4 * tile_rows.
//
// A row's result depends only on its q, its keys and where kv_begin lies (with a window not on that
// either): not on the other rows, on tile_rows or on kv_end beyond its own last key. Hence --invariant
// costs nothing here.
layout(local_size_x_id = 0) in;

const uint q_quads = head_dim / 4;
const uint column_quads = value_dim / 4;
const uint max_key_groups = workgroup_size / column_quads;
const uint key_groups = max_key_groups < workgroup_size / 4 ? max_key_groups : workgroup_size / 4;
const uint slices = 4;  // the same for every tile_rows: a row's bits do not depend on its tile
const uint weight_quads = workgroup_size / 4;  // of one row
const uint tile_capacity = tile_rows < 4 ? 4 : tile_rows;
const uint rows_at_once = tile_capacity / 4;  // that fit weight_tile when key groups are summed
const uint head_tiles = (group + tile_heads - 1) / tile_heads;
// Of a workgroup: vec4 y [tile_rows][lane], and vec2 (maximum, sum) [lane].
const uint carried_y_bytes = tile_rows * workgroup_size * 16;
const uint carried_bytes = carried_y_bytes + workgroup_size * 8;

shared vec4 q_tile[tile_rows * q_quads];
shared vec4 weight_tile[tile_capacity * weight_quads];
shared float slice_stats[workgroup_size];
shared float row_rescale[tile_rows];
shared uvec2 tile_blocks[workgroup_size / 16];  // address of this layer's K in each block

void main() {
  const uint lane = gl_LocalInvocationIndex;
  Item item = load_item(gl_WorkGroupID.x);
  const uint begin = take_keys(item, workgroup_size);
  if (is_over(item, begin)) return;
  const uint head_tile = pc.first_head_tile + gl_WorkGroupID.y;
  const uint kv_head = head_tile / head_tiles;
  const uint head_in_group = head_tile % head_tiles * tile_heads;
  const uint first_head = kv_head * group + head_in_group;
  const uint n_tile_heads = min(tile_heads, group - head_in_group);
  const uint n_heads = pc.n_kv_heads * group;

  const uint k_offset = k_head_offset(kv_head, k_type);
  const uint v_offset = value_head_offset(kv_head);

  for (uint i = lane; i < tile_rows * q_quads; i += workgroup_size) {
    const uint token = i / q_quads / tile_heads;
    const uint head = i / q_quads % tile_heads;
    vec4 q = vec4(0.0);
    if (token < item.n_rows && head < n_tile_heads) {
      const uint row = item.first_row + token;
      q = Vec4s(pc.q).v[(row * pc.q_stride + (first_head + head) * head_dim) / 4 +
                        i % q_quads];
    }
    q_tile[i] = q * (pc.scale * kLog2E);
  }

  // This lane's row in the softmax: keys [row_begin, row_end) are visible to it.
  const uint softmax_row = lane / slices;
  const uint slice = lane % slices;
  const uint softmax_token = softmax_row / tile_heads;
  const bool in_softmax = softmax_row < tile_rows;
  uint row_begin = 0;
  uint row_end = 0;
  if (in_softmax && softmax_token < item.n_rows) {
    const uint position = Uints(pc.positions).v[item.first_row + softmax_token];
    row_begin = first_visible_key(item, position);
    row_end = min(item.kv_end, position + 1);
  }
  float row_max = kNoKey;
  precise float row_sum = 0.0;  // of this lane's slice

  const uint column_quad = lane % column_quads;
  const uint key_group = lane / column_quads;
  vec4 y[tile_rows];
  [[unroll]] for (uint r = 0; r < tile_rows; ++r) y[r] = vec4(0.0);
  if (goes_on()) {
    const uvec2 carried = carried_address(carried_bytes);
    [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
      y[r] = Vec4s(carried).v[r * workgroup_size + lane];
    }
    const vec2 stats = Vec2s(address_add(carried, carried_y_bytes)).v[lane];
    row_max = stats.x;
    row_sum = stats.y;
  }
  barrier();

  for (uint first_key = begin; first_key < item.kv_end; first_key += workgroup_size) {
    const uint n_keys = min(workgroup_size, item.kv_end - first_key);
    const uint n_absent = keys_before(item, first_key);

    if (!is_behind(lane, n_absent) && lane < n_keys) {
      const uint key = first_key + lane;
      const uvec2 block = address_add(
          Uvec2s(pc.block_table).v[item.seq * pc.table_stride + key / 16], pc.layer_offset);
      if (lane % 16 == 0) tile_blocks[lane / 16] = block;
      const uvec2 k_address = address_add(block, k_offset + key % 16 * 16);
      float score[tile_rows];
      [[unroll]] for (uint r = 0; r < tile_rows; ++r) score[r] = 0.0;
      for (uint octet = 0; octet < head_dim / 8; ++octet) {
        vec4 low, high;
        load_k(k_type, k_address, key % 16, octet, low, high);
        [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
          const vec4 q_low = q_tile[r * q_quads + octet * 2];
          const vec4 q_high = q_tile[r * q_quads + octet * 2 + 1];
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
      [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
        weight_tile[r * weight_quads + lane / 4][lane % 4] =
            capped_score(clamp(score[r], -kScoreLimit, kScoreLimit));
      }
    }
    barrier();

    const uint hidden = row_begin > first_key ? row_begin - first_key : 0;
    const uint visible = row_end > first_key ? min(row_end - first_key, workgroup_size) : 0;
    float slice_max = kNoKey;
    for (uint key = slice; key < visible; key += slices) {
      if (is_behind(key, hidden)) continue;
      slice_max = max(slice_max, weight_tile[softmax_row * weight_quads + key / 4][key % 4]);
    }
    slice_stats[lane] = slice_max;
    barrier();

    if (in_softmax) {
      const float old_max = row_max;
      [[unroll]] for (uint i = 0; i < slices; ++i) {
        row_max = max(row_max, slice_stats[softmax_row * slices + i]);
      }
      const float rescale = softmax_weight(old_max, row_max);
      if (slice == 0) row_rescale[softmax_row] = rescale;
      row_sum *= rescale;
      // Up to the end of the last quad, so that the output loop need not look.
      for (uint key = slice; key < (n_keys + 3 & ~3u); key += slices) {
        float weight = 0.0;
        if (!is_behind(key, hidden) && key < visible) {
          weight = softmax_weight(weight_tile[softmax_row * weight_quads + key / 4][key % 4], row_max);
        }
        weight_tile[softmax_row * weight_quads + key / 4][key % 4] = weight;
        row_sum += weight;
      }
    }
    barrier();

    if (key_group < key_groups) {
      [[unroll]] for (uint r = 0; r < tile_rows; ++r) y[r] *= row_rescale[r];
      for (uint quad = key_group; quad * 4 < n_keys; quad += key_groups) {
        if (is_behind(quad * 4, n_absent)) continue;
        const uvec2 block = tile_blocks[quad / 4];
        const uvec2 v_address = address_add(block, v_offset);
        vec4 v[4];
        [[unroll]] for (uint i = 0; i < 4; ++i) {
          // A key past the end has weight 0; memory past it may hold anything, so read the last.
          const uint token = min(quad * 4 + i, n_keys - 1) % 16;
          v[i] = load_value(v_address, token, column_quad);
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
    barrier();  // weight_tile and tile_blocks are written next
  }

  if (pauses(item)) {
    const uvec2 carried = carried_address(carried_bytes);
    [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
      Vec4s(carried).v[r * workgroup_size + lane] = y[r];
    }
    Vec2s(address_add(carried, carried_y_bytes)).v[lane] = vec2(row_max, row_sum);
    return;
  }

  slice_stats[lane] = row_sum;
  const bool is_partial = item.partial != 0xFFFFFFFFu;
  if ((is_partial || has_sinks != 0) && in_softmax && slice == 0) {
    // The sum is known below, once the slices are in; the maximum is known only to this lane.
    row_rescale[softmax_row] = row_max;
  }
  [[unroll]] for (uint first = 0; first < tile_rows; first += rows_at_once) {
    barrier();
    if (key_group < key_groups) {
      [[unroll]] for (uint r = 0; r < rows_at_once; ++r) {
        weight_tile[r * workgroup_size + lane] = y[first + r];
      }
    }
    barrier();
    for (uint i = lane; i < rows_at_once * column_quads; i += workgroup_size) {
      const uint r = i / column_quads;
      const uint column = i % column_quads;
      const uint token = (first + r) / tile_heads;
      const uint head = (first + r) % tile_heads;
      if (token >= item.n_rows || head >= n_tile_heads) continue;
      vec4 value = vec4(0.0);
      for (uint g = 0; g < key_groups; ++g) {
        value += weight_tile[r * workgroup_size + g * column_quads + column];
      }
      float sum = 0.0;
      [[unroll]] for (uint s = 0; s < slices; ++s) sum += slice_stats[(first + r) * slices + s];
      if (is_partial) {
        const uint slot_head = (item.partial + token) * n_heads + first_head + head;
        Vec4s(pc.partial_y).v[slot_head * column_quads + column] = value;
        if (column == 0) {
          Vec2s(pc.partial_stats).v[slot_head] = vec2(row_rescale[first + r], sum);
        }
      } else {
        if (has_sinks != 0) {
          sum += sink_weight(Floats(pc.sinks).v[first_head + head], row_rescale[first + r]);
        }
        const uint first_column = (item.first_row + token) * pc.y_stride / 4;
        Vec4s(pc.y).v[first_column + (first_head + head) * column_quads + column] =
            sum > 0.0 ? value / sum : vec4(0.0);
      }
    }
  }
}
