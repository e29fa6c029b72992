#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_KHR_shader_subgroup_vote : require

#include "common/buffers.glsl"
#include "flash_attention/flash_attention_matrix_rows.h"
#include "flash_attention/attention_item.glsl"
#include "flash_attention/kv_halves.glsl"

// flash_attention_matrix.comp where a subgroup holds all columns of its rows: it has rows_each of the
// tile_rows of a workgroup, their y and scores in registers, and waits for the others only while K or V
// are replaced. For each KV tile of key_tile keys:
//   K into shared memory               all lanes
//   scores = q · Kᵀ                    through the subgroup's part of shared memory to its lanes
//   softmax                            lane = (row, slice): maximum and sum, scores -> weights
//   Vᵀ into shared memory, for K       all lanes
//   y = y * factor + weights · V
// What memory holds of the next K or V is loaded into registers before it is wanted, without a branch:
// what is outside of [kv_begin, kv_end) is replaced afterwards, in tiles where there is such. Only tiles
// of which a row of the subgroup does not see all are masked.
//
// A row's result depends only on its q, its keys and where kv_begin lies, as in flash_attention.comp:
// weights of keys it cannot see are 0, and V outside [kv_begin, kv_end) is read as 0, not as what lies
// there.
layout(local_size_x_id = 0) in;

const uint subgroups = workgroup_size / subgroup_size;
const uint rows_each = tile_rows / subgroups;
const uint row_tiles = rows_each / matrix_m;
// head_dim is padded with zeros to whole matrices.
const uint padded_dim = (head_dim + matrix_k - 1) / matrix_k * matrix_k;
const uint dim_steps = padded_dim / matrix_k;
const uint key_columns = key_tile / matrix_n;
const uint column_tiles = (v_dim + matrix_n - 1) / matrix_n;

// Shared memory holds units of 8 halves or 4 floats. Rows are padded, so that neighbouring ones begin in
// different banks.
const uint dim_stride = padded_dim / 8 + 1;
const uint value_stride = key_tile / 8 + 1;  // of Vᵀ: a column's keys
// A row of scores, and then in its place key_tile weights in halves and its factor, matrix_n times: KHR
// matrices have no rows.
const uint factor_unit = key_tile / 8;
const uint least_stride = factor_unit + matrix_n / 4;
const uint score_stride = key_tile / 4 + 2 > least_stride ? key_tile / 4 + 2 : least_stride;

const uint q_units = tile_rows * dim_stride;
const uint key_units = key_tile * dim_stride;
const uint value_units = column_tiles * matrix_n * value_stride;
const uint kv_units = key_units > value_units ? key_units : value_units;
shared uvec4 kv_tile[q_units > kv_units ? q_units : kv_units];  // of q first
shared uvec4 score_tile[tile_rows * score_stride];
shared vec2 row_stats[tile_rows];  // maximum and sum

// A lane loads octets of 4 tokens, always of the same block of the KV tile.
const uint groups = key_tile / 4;
const uint octets_a_round = workgroup_size / groups;
const uint rounds = (padded_dim / 8 + octets_a_round - 1) / octets_a_round;  // values are no larger
uvec4 next_units[rounds * 4];  // K or V as it came, on its way to kv_tile

// Lanes that share a row are neighbours. The same for every tile_rows: so are a row's bits.
const uint lanes_a_row = subgroup_size / rows_each;
const uint most_slices = subgroup_size < key_tile / 8 ? subgroup_size : key_tile / 8;
const uint slices = lanes_a_row < most_slices ? lanes_a_row : most_slices;
const uint octets_each = key_tile / 8 / slices;

struct Place {
  uint lane;
  uint first_row;  // of its subgroup
  uint row;        // of this lane in the softmax; tile_rows if it has none
  uint slice;
};

Place my_place() {
  Place at;
  at.lane = gl_SubgroupID * subgroup_size + gl_SubgroupInvocationID;
  at.first_row = gl_SubgroupID * rows_each;
  at.row = at.first_row + gl_SubgroupInvocationID / slices;
  if (lanes_a_row > slices && gl_SubgroupInvocationID >= rows_each * slices) at.row = tile_rows;
  at.slice = gl_SubgroupInvocationID % slices;
  return at;
}

/// The block of this lane's tokens; outside of the item's keys one that is in them.
uvec2 load_block(Item item, uint first_key, uint lane) {
  uint block = min(first_key / 16 + lane % groups / 4, (item.kv_end - 1) / 16);
  if (window != 0) block = max(block, item.kv_begin / 16);
  const uvec2 table = address_add(pc.block_table, item.seq * pc.table_stride * 8);
  return KvAddresses(address_add(table, block * 8)).v[0];
}

uint octet_of(uint round, uint lane) { return round * octets_a_round + lane / groups; }
/// Of this lane's 4 tokens in the block the first, and how many the next ones are apart: of V they are
/// neighbours, whose values are transposed together.
uint first_token(bool is_v, uint lane) { return lane % 4 * (is_v ? 4 : 1); }
uint token_step(bool is_v) { return is_v ? 1 : 4; }

void fetch(uvec2 head, bool is_v, uint lane) {
  const uint octets = is_v ? v_dim / 8 : head_dim / 8;
  [[unroll]] for (uint i = 0; i < rounds; ++i) {
    if (i * octets_a_round >= octets) continue;
    const uint octet = octets % octets_a_round == 0 ? octet_of(i, lane) : min(octet_of(i, lane), octets - 1);
    const Octets from = octets_at(head, first_token(is_v, lane), octet, is_v);
    [[unroll]] for (uint j = 0; j < 4; ++j) {
      next_units[i * 4 + j] = load_unit(from, j * token_step(is_v), is_v);
    }
  }
}

/// next_units into kv_tile [key][padded_dim].
void store_keys(uint lane) {
  [[unroll]] for (uint i = 0; i < rounds; ++i) {
    const uint octet = octet_of(i, lane);
    if (padded_dim / 8 % octets_a_round != 0 && octet >= padded_dim / 8) continue;
    [[unroll]] for (uint j = 0; j < 4; ++j) {
      const uint key = lane % groups / 4 * 16 + first_token(false, lane) + j * token_step(false);
      uvec4 halves = halves_of_unit(k_type, next_units[i * 4 + j], octet);
      if (padded_dim != head_dim && octet >= head_dim / 8) halves = uvec4(0);
      kv_tile[key * dim_stride + octet] = halves;
    }
  }
}

/// next_units into kv_tile, transposed: [column][key_tile].
void store_values(Item item, uint first_key, uint lane) {
  const uint first = lane % groups * 4;
  const uint behind = keys_before(item, first_key);
  const bool is_edge = first_key + key_tile > item.kv_end || behind > 0;
  [[unroll]] for (uint i = 0; i < rounds; ++i) {
    const uint octet = octet_of(i, lane);
    if (rounds * octets_a_round != v_dim / 8 && octet >= v_dim / 8) continue;
    if (is_edge) {
      [[unroll]] for (uint j = 0; j < 4; ++j) {
        const uint key = first + j;
        if (key < behind || first_key + key >= item.kv_end) next_units[i * 4 + j] = uvec4(0);
      }
    }
    uvec4 halves[4];
    [[unroll]] for (uint j = 0; j < 4; ++j) {
      halves[j] = halves_of_unit(v_type, next_units[i * 4 + j], octet);
    }
    [[unroll]] for (uint c = 0; c < 4; ++c) {
      f16vec2 pair[4];
      [[unroll]] for (uint j = 0; j < 4; ++j) pair[j] = unpackFloat2x16(halves[j][c]);
      const uvec2 columns = octet * 8 + columns_of_pair(v_type, c);
      [[unroll]] for (uint h = 0; h < 2; ++h) {
        const uint at = columns[h] * value_stride + lane % groups / 2;
        kv_tile[at][lane % 2 * 2] = packFloat2x16(f16vec2(pair[0][h], pair[1][h]));
        kv_tile[at][lane % 2 * 2 + 1] = packFloat2x16(f16vec2(pair[2][h], pair[3][h]));
      }
    }
  }
}

coopmat<float16_t, gl_ScopeSubgroup, matrix_m, matrix_k, gl_MatrixUseA>
    q[row_tiles * dim_steps];
coopmat<float, gl_ScopeSubgroup, matrix_m, matrix_n, gl_MatrixUseAccumulator>
    scores[row_tiles * key_columns];

void score_keys(Place at) {
  [[unroll]] for (uint i = 0; i < row_tiles * key_columns; ++i) {
    scores[i] = coopmat<float, gl_ScopeSubgroup, matrix_m, matrix_n, gl_MatrixUseAccumulator>(0.0);
  }
  [[unroll]] for (uint i = 0; i < dim_steps; ++i) {
    [[unroll]] for (uint c = 0; c < key_columns; ++c) {
      coopmat<float16_t, gl_ScopeSubgroup, matrix_k, matrix_n, gl_MatrixUseB> k;
      coopMatLoad(k, kv_tile, c * matrix_n * dim_stride + i * (matrix_k / 8), dim_stride,
                  gl_CooperativeMatrixLayoutColumnMajor);
      [[unroll]] for (uint r = 0; r < row_tiles; ++r) {
        scores[r * key_columns + c] =
            coopMatMulAdd(q[r * dim_steps + i], k, scores[r * key_columns + c]);
      }
    }
  }
  [[unroll]] for (uint r = 0; r < row_tiles; ++r) {
    [[unroll]] for (uint c = 0; c < key_columns; ++c) {
      coopMatStore(scores[r * key_columns + c], score_tile,
                   (at.first_row + r * matrix_m) * score_stride +
                       c * (matrix_n / 4),
                   score_stride, gl_CooperativeMatrixLayoutRowMajor);
    }
  }
}

// Of this lane's row.
float row_max;  // what its weights are relative to: the maximum, but for what kSlack allows
float row_sum;  // of this lane's slice
uint row_begin;  // keys from here
uint row_end;    // to here are visible to it
bool rescales;   // whether y is to be multiplied by factors

// A row's maximum may rise so far, in base 2, before its sums are rescaled: weights are then at most 2^8.
const float kSlack = 8.0;
// Relative to what keys are weighed while none is visible: a score, not that of no key.
const float kLeastScore = -1e30;

void softmax(Place at, uint first_key) {
  const bool is_row = lanes_a_row == slices || at.row < tile_rows;
  const uint first_unit = (is_row ? at.row : 0) * score_stride;
  const float scale = pc.scale * kLog2E;
  const float to_base2 = soft_cap != 0.0 ? 1.0 : scale;
  vec4 quads[octets_each * 2];
  [[unroll]] for (uint j = 0; j < octets_each * 2; ++j) {
    quads[j] = uintBitsToFloat(score_tile[first_unit + (j / 2 * slices + at.slice) * 2 + j % 2]);
    if (soft_cap != 0.0) {
      [[unroll]] for (uint c = 0; c < 4; ++c) quads[j][c] = capped_score(quads[j][c] * scale);
    }
  }
  const bool sees_all = !is_behind(first_key, row_begin) && first_key + key_tile <= row_end;
  if (!subgroupAll(sees_all)) {
    const uint hidden = row_begin > first_key ? row_begin - first_key : 0;
    const uint visible = row_end > first_key ? row_end - first_key : 0;
    [[unroll]] for (uint j = 0; j < octets_each * 2; ++j) {
      [[unroll]] for (uint c = 0; c < 4; ++c) {
        const uint key = ((j / 2 * slices + at.slice) * 2 + j % 2) * 4 + c;
        if (is_behind(key, hidden) || key >= visible) quads[j][c] = kNoKey;
      }
    }
  }
  float tile_max = kNoKey;
  [[unroll]] for (uint j = 0; j < octets_each * 2; ++j) {
    tile_max = max(tile_max, max(max(quads[j].x, quads[j].y), max(quads[j].z, quads[j].w)));
  }
  [[unroll]] for (uint i = 1; i < slices; i *= 2) {
    tile_max = max(tile_max, subgroupShuffleXor(tile_max, i));
  }
  tile_max = tile_max < -kScoreLimit ? kNoKey : tile_max * to_base2;
  float factor = 1.0;
  if (tile_max > row_max + kSlack) {
    factor = exp2(row_max - tile_max);
    row_max = tile_max;
  }
  const float zero = -max(row_max, kLeastScore);
  precise float sum = row_sum * factor;
  uvec4 weights[octets_each];
  [[unroll]] for (uint j = 0; j < octets_each * 2; ++j) {
    const vec4 weight = exp2(fma(quads[j], vec4(to_base2), vec4(zero)));
    const uvec2 halves = uvec2(packHalf2x16(weight.xy), packHalf2x16(weight.zw));
    // Of what is multiplied with V: weights add up to 1.
    const vec4 rounded = vec4(unpackHalf2x16(halves.x), unpackHalf2x16(halves.y));
    sum += rounded.x;
    sum += rounded.y;
    sum += rounded.z;
    sum += rounded.w;
    weights[j / 2][j % 2 * 2] = halves.x;
    weights[j / 2][j % 2 * 2 + 1] = halves.y;
  }
  row_sum = sum;
  rescales = subgroupAny(factor != 1.0);
  subgroupBarrier();  // the row's scores have been read
  if (!is_row) return;
  [[unroll]] for (uint j = 0; j < octets_each; ++j) {
    score_tile[first_unit + j * slices + at.slice] = weights[j];
  }
  if (!rescales) return;
  [[unroll]] for (uint i = 0; i < (matrix_n / 4 + slices - 1) / slices; ++i) {
    const uint quad = i * slices + at.slice;
    if (matrix_n / 4 % slices != 0 && quad >= matrix_n / 4) continue;
    score_tile[first_unit + factor_unit + quad] = uvec4(floatBitsToUint(factor));
  }
}

coopmat<float, gl_ScopeSubgroup, matrix_m, matrix_n, gl_MatrixUseAccumulator>
    y[column_tiles * row_tiles];

void add_values(Place at) {
  if (rescales) {
    [[unroll]] for (uint r = 0; r < row_tiles; ++r) {
      coopmat<float, gl_ScopeSubgroup, matrix_m, matrix_n, gl_MatrixUseAccumulator> factors;
      coopMatLoad(factors, score_tile, (at.first_row + r * matrix_m) * score_stride + factor_unit,
                  score_stride, gl_CooperativeMatrixLayoutRowMajor);
      [[unroll]] for (uint i = 0; i < column_tiles; ++i) {
        y[i * row_tiles + r] = y[i * row_tiles + r] * factors;
      }
    }
  }
  [[unroll]] for (uint key = 0; key < key_tile; key += matrix_k) {
    coopmat<float16_t, gl_ScopeSubgroup, matrix_m, matrix_k, gl_MatrixUseA> weights[row_tiles];
    [[unroll]] for (uint r = 0; r < row_tiles; ++r) {
      coopMatLoad(weights[r], score_tile, (at.first_row + r * matrix_m) * score_stride + key / 8,
                  score_stride, gl_CooperativeMatrixLayoutRowMajor);
    }
    [[unroll]] for (uint i = 0; i < column_tiles; ++i) {
      coopmat<float16_t, gl_ScopeSubgroup, matrix_k, matrix_n, gl_MatrixUseB> v;
      coopMatLoad(v, kv_tile, i * matrix_n * value_stride + key / 8, value_stride,
                  gl_CooperativeMatrixLayoutColumnMajor);
      [[unroll]] for (uint r = 0; r < row_tiles; ++r) {
        y[i * row_tiles + r] = coopMatMulAdd(weights[r], v, y[i * row_tiles + r]);
      }
    }
  }
}

/// Adds up each row's sum over its slices.
void store_row_stats(Place at) {
  precise float sum = row_sum;
  [[unroll]] for (uint i = 1; i < slices; i *= 2) sum += subgroupShuffleXor(sum, i);
  if (at.slice == 0 && at.row < tile_rows) row_stats[at.row] = vec2(row_max, sum);
}

const uint part_quads = key_tile / 4;  // of a row of score_tile

/// key_columns matrices from `first` on, from score_tile to memory.
void write_columns(uint first, Item item, HeadTile heads, Place at) {
  for (uint i = gl_SubgroupInvocationID; i < rows_each * part_quads; i += subgroup_size) {
    const uint row = at.first_row + i / part_quads;
    const uint quad = first * (matrix_n / 4) + i % part_quads;
    if (!has_row(item, heads, row) || quad >= column_quads) continue;
    const uvec4 value = score_tile[row * score_stride + i % part_quads];
    write_quad(item, heads, row, quad, uintBitsToFloat(value), row_stats[row]);
  }
}

/// Through shared memory: a cooperative matrix is stored whole or not at all. All subgroups reach
/// every barrier: lavapipe makes a workgroup's of a subgroup's.
void write_out(Item item, HeadTile heads, Place at) {
  store_row_stats(at);
  [[unroll]] for (uint first = 0; first < column_tiles; first += key_columns) {
    [[unroll]] for (uint i = 0; i < key_columns; ++i) {
      if (first + i >= column_tiles) continue;
      [[unroll]] for (uint r = 0; r < row_tiles; ++r) {
        coopMatStore(y[(first + i) * row_tiles + r], score_tile,
                     (at.first_row + r * matrix_m) * score_stride + i * (matrix_n / 4),
                     score_stride, gl_CooperativeMatrixLayoutRowMajor);
      }
    }
    subgroupBarrier();
    write_columns(first, item, heads, at);
    subgroupBarrier();
  }
}

// Of a workgroup: y's matrices [subgroup][column_tiles][row_tiles], and vec2 (maximum, sum) [lane].
const uint matrix_quads = matrix_m * matrix_n / 4;
const uint carried_y_bytes = subgroups * column_tiles * row_tiles * matrix_quads * 16;
const uint carried_bytes = carried_y_bytes + workgroup_size * 8;

uint carried_matrix(uint i) {
  return (gl_SubgroupID * column_tiles * row_tiles + i) * matrix_quads;
}

void load_carried(uint lane) {
  const uvec2 carried = carried_address(carried_bytes);
  const vec2 stats = Vec2s(address_add(carried, carried_y_bytes)).v[lane];
  row_max = stats.x;
  row_sum = stats.y;
  [[unroll]] for (uint i = 0; i < column_tiles * row_tiles; ++i) {
    coopMatLoad(y[i], Vec4s(carried).v, carried_matrix(i), matrix_n / 4,
                gl_CooperativeMatrixLayoutRowMajor);
  }
}

void store_carried(uint lane) {
  const uvec2 carried = carried_address(carried_bytes);
  Vec2s(address_add(carried, carried_y_bytes)).v[lane] = vec2(row_max, row_sum);
  [[unroll]] for (uint i = 0; i < column_tiles * row_tiles; ++i) {
    coopMatStore(y[i], Vec4s(carried).v, carried_matrix(i), matrix_n / 4,
                 gl_CooperativeMatrixLayoutRowMajor);
  }
}

/// The state before any key. A row of the tile that is none of the item sees all, so that no tile is
/// masked for it.
void begin_row(Item item, Place at) {
  const uint token = at.row / tile_heads;
  row_max = kNoKey;
  row_sum = 0.0;
  row_begin = 0;
  row_end = 0xFFFFFFFFu;
  if (token < item.n_rows) {
    const uvec2 keys = visible_keys(item, item.first_row + token);
    row_begin = keys.x;
    row_end = keys.y;
  }
  [[unroll]] for (uint i = 0; i < column_tiles * row_tiles; ++i) {
    y[i] = coopmat<float, gl_ScopeSubgroup, matrix_m, matrix_n, gl_MatrixUseAccumulator>(0.0);
  }
}

/// q, not yet scaled, through shared memory into registers.
void load_q_tile(Item item, HeadTile heads, Place at) {
  for (uint i = at.lane; i < tile_rows * (padded_dim / 8); i += workgroup_size) {
    const uint row = i / (padded_dim / 8);
    const uint octet = i % (padded_dim / 8);
    uvec4 halves = uvec4(0);
    if (has_row(item, heads, row) && octet < head_dim / 8) {
      halves = halves_in_order(k_type, load_q(item, heads, row, octet * 2),
                               load_q(item, heads, row, octet * 2 + 1));
    }
    kv_tile[row * dim_stride + octet] = halves;
  }
  barrier();
  [[unroll]] for (uint r = 0; r < row_tiles; ++r) {
    [[unroll]] for (uint i = 0; i < dim_steps; ++i) {
      coopMatLoad(q[r * dim_steps + i], kv_tile,
                  (at.first_row + r * matrix_m) * dim_stride + i * (matrix_k / 8), dim_stride,
                  gl_CooperativeMatrixLayoutRowMajor);
    }
  }
  barrier();
}

void main() {
  // Neighbouring invocations of a subgroup share a row, whatever gl_LocalInvocationIndex says.
  const Place at = my_place();
  Item item = load_item(gl_WorkGroupID.x);
  const uint begin = take_keys(item, key_tile);
  if (is_over(item, begin)) return;
  const HeadTile heads = load_head_tile();
  const uint k_offset = pc.layer_offset + k_head_offset(heads.kv_head, k_type);
  const uint v_offset =
      pc.layer_offset + v_head_offset(heads.kv_head, pc.n_kv_heads, k_type, v_type);

  begin_row(item, at);
  if (goes_on()) load_carried(at.lane);
  uvec2 block = load_block(item, begin, at.lane);
  fetch(address_add(block, k_offset), false, at.lane);
  load_q_tile(item, heads, at);
  for (uint first_key = begin; first_key < item.kv_end; first_key += key_tile) {
    store_keys(at.lane);
    barrier();
    fetch(address_add(block, v_offset), true, at.lane);
    block = load_block(item, first_key + key_tile, at.lane);
    score_keys(at);
    subgroupBarrier();
    softmax(at, first_key);
    barrier();
    store_values(item, first_key, at.lane);
    barrier();
    fetch(address_add(block, k_offset), false, at.lane);
    add_values(at);
    barrier();
  }
  if (pauses(item)) {
    store_carried(at.lane);
    return;
  }
  write_out(item, heads, at);
}
