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
const uint max_key_groups = workgroup_size / column_quads;
const uint key_groups = max_key_groups < workgroup_size / 4 ? max_key_groups : workgroup_size / 4;
const uint slices = 4;  // the same for every tile_rows: a row's bits do not depend on its tile
const uint weight_quads = workgroup_size / 4;  // of one row
const uint tile_capacity = tile_rows < 4 ? 4 : tile_rows;
const uint rows_at_once = tile_capacity / 4;  // that fit weight_tile when key groups are summed
// Of a workgroup: vec4 y [tile_rows][lane], and vec2 (maximum, sum) [lane].
const uint carried_y_bytes = tile_rows * workgroup_size * 16;
const uint carried_bytes = carried_y_bytes + workgroup_size * 8;

shared vec4 q_tile[tile_rows * q_quads];
shared vec4 weight_tile[tile_capacity * weight_quads];  // scores at first
shared float slice_stats[workgroup_size];
shared float row_rescale[tile_rows];
shared uvec2 tile_blocks[workgroup_size / 16];  // address of this layer's K in each block

// Of this lane's row in the softmax: keys [row_begin, row_end) are visible to it.
uint row_begin;
uint row_end;
float row_max;
float row_sum;  // of this lane's slice
// Of this lane's columns, over the keys of its key group.
vec4 y[tile_rows];

uint softmax_row(uint lane) { return lane / slices; }
bool in_softmax(uint lane) { return softmax_row(lane) < tile_rows; }
uint key_group(uint lane) { return lane / column_quads; }

void load_q_tile(Item item, HeadTile heads, uint lane) {
  for (uint i = lane; i < tile_rows * q_quads; i += workgroup_size) {
    const uint row = i / q_quads;
    vec4 q = vec4(0.0);
    if (has_row(item, heads, row)) q = load_q(item, heads, row, i % q_quads);
    q_tile[i] = q * (pc.scale * kLog2E);
  }
}

/// The state before any key.
void begin_rows(Item item, uint lane) {
  const uint token = softmax_row(lane) / tile_heads;
  row_begin = 0;
  row_end = 0;
  if (token < item.n_rows) {
    const uvec2 keys = visible_keys(item, item.first_row + token);
    row_begin = keys.x;
    row_end = keys.y;
  }
  row_max = kNoKey;
  row_sum = 0.0;
  [[unroll]] for (uint r = 0; r < tile_rows; ++r) y[r] = vec4(0.0);
}

void load_carried(uint lane) {
  const uvec2 carried = carried_address(carried_bytes);
  [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
    y[r] = Vec4s(carried).v[r * workgroup_size + lane];
  }
  const vec2 stats = Vec2s(address_add(carried, carried_y_bytes)).v[lane];
  row_max = stats.x;
  row_sum = stats.y;
}

void store_carried(uint lane) {
  const uvec2 carried = carried_address(carried_bytes);
  [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
    Vec4s(carried).v[r * workgroup_size + lane] = y[r];
  }
  Vec2s(address_add(carried, carried_y_bytes)).v[lane] = vec2(row_max, row_sum);
}

/// Every row's score with one key into weight_tile, column `lane`. The key is token `token` of its block,
/// its K at `address`.
void score_key(uvec2 address, uint token, uint lane) {
  float score[tile_rows];
  [[unroll]] for (uint r = 0; r < tile_rows; ++r) score[r] = 0.0;
  for (uint octet = 0; octet < head_dim / 8; ++octet) {
    vec4 low, high;
    load_k(k_type, address, token, octet, low, high);
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

/// The scores of a KV tile's keys, each by a lane, which notes its block for add_values.
void score_keys(Item item, uint first_key, uint n_keys, uint k_offset, uint lane) {
  if (!is_behind(lane, keys_before(item, first_key)) && lane < n_keys) {
    const uint key = first_key + lane;
    const uvec2 block = address_add(
        Uvec2s(pc.block_table).v[item.seq * pc.table_stride + key / 16], pc.layer_offset);
    if (lane % 16 == 0) tile_blocks[lane / 16] = block;
    score_key(address_add(block, k_offset + key % 16 * 16), key % 16, lane);
  }
}

/// Takes a KV tile's scores into the maximum and sum of this lane's row, and turns them into weights.
void softmax(uint first_key, uint n_keys, uint lane) {
  const uint row = softmax_row(lane);
  const uint slice = lane % slices;
  const uint hidden = row_begin > first_key ? row_begin - first_key : 0;
  const uint visible = row_end > first_key ? min(row_end - first_key, workgroup_size) : 0;
  float slice_max = kNoKey;
  for (uint key = slice; key < visible; key += slices) {
    if (is_behind(key, hidden)) continue;
    slice_max = max(slice_max, weight_tile[row * weight_quads + key / 4][key % 4]);
  }
  slice_stats[lane] = slice_max;
  barrier();

  if (in_softmax(lane)) {
    const float old_max = row_max;
    [[unroll]] for (uint i = 0; i < slices; ++i) {
      row_max = max(row_max, slice_stats[row * slices + i]);
    }
    const float rescale = softmax_weight(old_max, row_max);
    if (slice == 0) row_rescale[row] = rescale;
    precise float sum = row_sum * rescale;
    // Up to the end of the last quad, so that add_values need not look.
    for (uint key = slice; key < (n_keys + 3 & ~3u); key += slices) {
      float weight = 0.0;
      if (!is_behind(key, hidden) && key < visible) {
        weight = softmax_weight(weight_tile[row * weight_quads + key / 4][key % 4], row_max);
      }
      weight_tile[row * weight_quads + key / 4][key % 4] = weight;
      sum += weight;
    }
    row_sum = sum;
  }
}

/// y = y * rescaling + weights * V of a KV tile, by the lanes of each key group for its keys.
void add_values(Item item, uint first_key, uint n_keys, uint v_offset, uint lane) {
  if (key_group(lane) < key_groups) {
    const uint n_absent = keys_before(item, first_key);
    [[unroll]] for (uint r = 0; r < tile_rows; ++r) y[r] *= row_rescale[r];
    for (uint quad = key_group(lane); quad * 4 < n_keys; quad += key_groups) {
      if (is_behind(quad * 4, n_absent)) continue;
      const uvec2 v_address = address_add(tile_blocks[quad / 4], v_offset);
      vec4 v[4];
      [[unroll]] for (uint i = 0; i < 4; ++i) {
        // A key past the end has weight 0; memory past it may hold anything, so read the last.
        const uint token = min(quad * 4 + i, n_keys - 1) % 16;
        v[i] = load_value(v_address, token, lane % column_quads);
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
}

/// Adds up four columns of a row, which weight_tile has as its row `r` of each key group, and writes them.
void write_sum(Item item, HeadTile heads, uint row, uint r, uint column) {
  vec4 value = vec4(0.0);
  for (uint g = 0; g < key_groups; ++g) {
    value += weight_tile[r * workgroup_size + g * column_quads + column];
  }
  float sum = 0.0;
  [[unroll]] for (uint s = 0; s < slices; ++s) sum += slice_stats[row * slices + s];
  write_quad(item, heads, row, column, value, vec2(row_rescale[row], sum));
}

/// The sum over key groups goes through weight_tile, rows_at_once rows at a time.
void write_out(Item item, HeadTile heads, uint lane) {
  slice_stats[lane] = row_sum;
  if (in_softmax(lane) && lane % slices == 0) row_rescale[softmax_row(lane)] = row_max;
  [[unroll]] for (uint first = 0; first < tile_rows; first += rows_at_once) {
    barrier();
    if (key_group(lane) < key_groups) {
      [[unroll]] for (uint r = 0; r < rows_at_once; ++r) {
        weight_tile[r * workgroup_size + lane] = y[first + r];
      }
    }
    barrier();
    for (uint i = lane; i < rows_at_once * column_quads; i += workgroup_size) {
      const uint r = i / column_quads;
      if (has_row(item, heads, first + r)) write_sum(item, heads, first + r, r, i % column_quads);
    }
  }
}

void main() {
  const uint lane = gl_LocalInvocationIndex;
  Item item = load_item(gl_WorkGroupID.x);
  const uint begin = take_keys(item, workgroup_size);
  if (is_over(item, begin)) return;
  const HeadTile heads = load_head_tile();
  const uint k_offset = k_head_offset(heads.kv_head, k_type);
  const uint v_offset = value_head_offset(heads.kv_head);

  load_q_tile(item, heads, lane);
  begin_rows(item, lane);
  if (goes_on()) load_carried(lane);
  barrier();
  for (uint first_key = begin; first_key < item.kv_end; first_key += workgroup_size) {
    const uint n_keys = min(workgroup_size, item.kv_end - first_key);
    score_keys(item, first_key, n_keys, k_offset, lane);
    barrier();
    softmax(first_key, n_keys, lane);
    barrier();
    add_values(item, first_key, n_keys, v_offset, lane);
    barrier();  // weight_tile and tile_blocks are written next
  }
  if (pauses(item)) {
    store_carried(lane);
    return;
  }
  write_out(item, heads, lane);
}
