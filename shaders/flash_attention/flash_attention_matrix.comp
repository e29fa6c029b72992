#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require

#include "common/buffers.glsl"
#include "flash_attention/flash_attention_matrix.h"
#include "flash_attention/attention_item.glsl"

// flash_attention.comp on matrix cores: q, K, the weights and V as fp16, sums in fp32. One workgroup
// per (item, tile of heads of one kv head); a tile has `tile_rows` rows, row = token * tile_heads +
// head. For each KV tile of key_tile keys:
//   K into shared memory        all lanes
//   scores = q · Kᵀ             subgroups share out the columns, that is keys
//   V into shared memory        all lanes, in place of K
//   softmax                     lane = (row, slice): maximum and sum, scores -> weights, rescaling
//   y = y * rescaling + weights · V   subgroups share out the columns and keep y in registers
// What memory holds of the next K or V is loaded into registers before it is wanted.
//
// A row's result depends only on its q, its keys and where kv_begin lies, as in flash_attention.comp:
// weights of keys it cannot see are 0, and V outside [kv_begin, kv_end) is read as 0, not as what lies
// there.
layout(local_size_x_id = 0) in;

const uint subgroups = workgroup_size / subgroup_size;
const uint row_tiles = tile_rows / matrix_m;
// head_dim is padded with zeros to whole matrices. Columns of V behind v_dim hold what K left there, and
// what becomes of them is not written.
const uint dim_step = matrix_k > matrix_n ? matrix_k : matrix_n;
const uint padded_dim = (head_dim + dim_step - 1) / dim_step * dim_step;
const uint column_tiles = (v_dim + matrix_n - 1) / matrix_n;
const uint columns_each = (column_tiles + subgroups - 1) / subgroups;  // of a subgroup

// Rows are padded by 16 bytes, so that neighbouring rows begin in different banks.
const uint dim_stride = padded_dim / 4 + 2;   // f16vec4
const uint padding_stride = dim_stride - head_dim / 4;
const uint weight_stride = key_tile / 4 + 2;  // f16vec4
const uint score_stride = key_tile / 4 + 1;   // vec4
const uint matrix_quads = matrix_m * matrix_n / 4;
const uint score_quads = tile_rows * score_stride;
const uint out_quads = subgroups * matrix_quads;

shared f16vec4 q_tile[tile_rows * dim_stride];
shared f16vec4 kv_tile[key_tile * dim_stride];
shared vec4 score_tile[score_quads > out_quads ? score_quads : out_quads];  // and y on its way out
shared f16vec4 weight_tile[tile_rows * weight_stride];
// A matrix for each row tile, each row of which is that row's factor: KHR matrices have no rows.
shared vec4 rescale_tile[tile_rows * matrix_n / 4];
shared vec2 row_stats[tile_rows];  // maximum and sum

/// Units of 8 elements of a key or a value.
uint units_of(bool is_v) { return (is_v ? v_dim : head_dim) / 8; }
const uint units_each = (key_tile * (head_dim / 8) + workgroup_size - 1) / workgroup_size;
uvec4 next_units[units_each];  // halves of K or V, on their way to kv_tile

// A row is shared by 4 neighbouring lanes. The same for every tile_rows: so are a row's bits.
const uint slices = 4;
const uint slice_quads = key_tile / 4 / slices;
const uint row_rounds = (tile_rows * slices + workgroup_size - 1) / workgroup_size;

f16vec4 to_half(vec4 value) {
  return min(max(f16vec4(value), f16vec4(-65504.0hf)), f16vec4(65504.0hf));
}

uvec2 half_bits_of(vec4 value) {
  const f16vec4 halves = to_half(value);
  return uvec2(packFloat2x16(halves.xy), packFloat2x16(halves.zw));
}

/// K (`is_v` false) or V of a tile's keys into next_units. Lanes take octets in the order of those in F16:
/// K [head_dim / 8][token], V [token][v_dim / 8].
void fetch(Item item, uint first_key, uint head_offset, bool is_v, uint lane) {
  const uint head_units = units_of(is_v);
  const uint tile_units = key_tile * head_units;
  [[unroll]] for (uint i = 0; i < units_each; ++i) {
    const uint unit = i * workgroup_size + lane;
    const uint block = unit / (16 * head_units);
    const uint at = unit % (16 * head_units);
    const uint key = first_key + block * 16 + (is_v ? at / head_units : at % 16);
    next_units[i] = uvec4(0);
    if (is_behind(key, item.kv_begin)) continue;
    if (key >= item.kv_end || units_each * workgroup_size != tile_units && unit >= tile_units) continue;
    const uvec2 address = address_add(
        Uvec2s(pc.block_table).v[item.seq * pc.table_stride + first_key / 16 + block], head_offset);
    if ((is_v ? v_type : k_type) == KV_F16) {
      next_units[i] = Uvec4s(address).v[at];
      continue;
    }
    vec4 low, high;
    if (is_v) {
      low = load_v(v_type, address, at / head_units, at % head_units * 2);
      high = load_v(v_type, address, at / head_units, at % head_units * 2 + 1);
    } else {
      load_k(k_type, address_add(address, at % 16 * 16), at % 16, at / 16, low, high);
    }
    next_units[i] = uvec4(half_bits_of(low), half_bits_of(high));
  }
}

/// next_units into kv_tile [key][padded_dim].
void store(bool is_v, uint lane) {
  const uint head_units = units_of(is_v);
  const uint tile_units = key_tile * head_units;
  [[unroll]] for (uint i = 0; i < units_each; ++i) {
    const uint unit = i * workgroup_size + lane;
    if (units_each * workgroup_size != tile_units && unit >= tile_units) continue;
    const uint block = unit / (16 * head_units);
    const uint at = unit % (16 * head_units);
    const uint key = block * 16 + (is_v ? at / head_units : at % 16);
    const uint octet = is_v ? at % head_units : at / 16;
    const uvec4 halves = next_units[i];
    kv_tile[key * dim_stride + octet * 2] =
        f16vec4(unpackFloat2x16(halves.x), unpackFloat2x16(halves.y));
    kv_tile[key * dim_stride + octet * 2 + 1] =
        f16vec4(unpackFloat2x16(halves.z), unpackFloat2x16(halves.w));
  }
}

const uint unrolled = 4;  // products along head_dim: all of it, and CPU drivers compile for minutes
const uint key_columns = key_tile / matrix_n;
const uint row_tiles_each = row_tiles / column_shares;

void score_keys() {
  for (uint share = gl_SubgroupID; share < key_columns * column_shares; share += subgroups) {
    const uint key = share / column_shares * matrix_n;
    const uint first_row = share % column_shares * row_tiles_each * matrix_m;
    coopmat<float, gl_ScopeSubgroup, matrix_m, matrix_n, gl_MatrixUseAccumulator>
        scores[row_tiles_each];
    [[unroll]] for (uint r = 0; r < row_tiles_each; ++r) {
      scores[r] =
          coopmat<float, gl_ScopeSubgroup, matrix_m, matrix_n, gl_MatrixUseAccumulator>(0.0);
    }
    [[dont_unroll]] for (uint first = 0; first < padded_dim; first += unrolled * matrix_k) {
      [[unroll]] for (uint i = 0; i < unrolled; ++i) {
        const uint d = first + i * matrix_k;
        if (padded_dim % (unrolled * matrix_k) != 0 && d >= padded_dim) continue;
        coopmat<float16_t, gl_ScopeSubgroup, matrix_k, matrix_n, gl_MatrixUseB> k;
        coopMatLoad(k, kv_tile, key * dim_stride + d / 4, dim_stride,
                    gl_CooperativeMatrixLayoutColumnMajor);
        [[unroll]] for (uint r = 0; r < row_tiles_each; ++r) {
          coopmat<float16_t, gl_ScopeSubgroup, matrix_m, matrix_k, gl_MatrixUseA> q;
          coopMatLoad(q, q_tile, (first_row + r * matrix_m) * dim_stride + d / 4, dim_stride,
                      gl_CooperativeMatrixLayoutRowMajor);
          scores[r] = coopMatMulAdd(q, k, scores[r]);
        }
      }
    }
    [[unroll]] for (uint r = 0; r < row_tiles_each; ++r) {
      coopMatStore(scores[r], score_tile, (first_row + r * matrix_m) * score_stride + key / 4,
                   score_stride, gl_CooperativeMatrixLayoutRowMajor);
    }
  }
}

float row_max[row_rounds];
float row_sum[row_rounds];   // of this lane's slice
uint row_begin[row_rounds];  // keys from here
uint row_end[row_rounds];    // to here are visible to the row

void softmax(uint first_key, uint lane) {
  const float score_scale = pc.scale * kLog2E;
  [[unroll]] for (uint i = 0; i < row_rounds; ++i) {
    const uint row = (i * workgroup_size + lane) / slices;
    const uint slice = lane % slices;
    const bool is_row = row < tile_rows;
    const uint hidden = row_begin[i] > first_key ? row_begin[i] - first_key : 0;
    const uint visible = row_end[i] > first_key ? row_end[i] - first_key : 0;
    vec4 scores[slice_quads];
    float tile_max = kNoKey;
    [[unroll]] for (uint j = 0; j < slice_quads; ++j) {
      const uint quad = j * slices + slice;
      if (is_row) scores[j] = score_tile[row * score_stride + quad] * score_scale;
      [[unroll]] for (uint c = 0; c < 4; ++c) {
        const uint key = quad * 4 + c;
        const bool is_visible = !is_behind(key, hidden) && key < visible;
        scores[j][c] = is_visible ? capped_score(scores[j][c]) : kNoKey;
        tile_max = max(tile_max, scores[j][c]);
      }
    }
    tile_max = max(tile_max, subgroupShuffleXor(tile_max, 1));
    tile_max = max(tile_max, subgroupShuffleXor(tile_max, 2));
    const float old_max = row_max[i];
    row_max[i] = max(old_max, tile_max);
    const float rescale = softmax_weight(old_max, row_max[i]);
    precise float sum = row_sum[i] * rescale;
    [[unroll]] for (uint j = 0; j < slice_quads; ++j) {
      f16vec4 weights;
      [[unroll]] for (uint c = 0; c < 4; ++c) {
        weights[c] = float16_t(softmax_weight(scores[j][c], row_max[i]));
        sum += float(weights[c]);  // what is multiplied with V: weights add up to 1
      }
      if (is_row) weight_tile[row * weight_stride + j * slices + slice] = weights;
    }
    row_sum[i] = sum;
    if (is_row) {
      for (uint quad = slice; quad < matrix_n / 4; quad += slices) {
        rescale_tile[row * matrix_n / 4 + quad] = vec4(rescale);
      }
    }
  }
}

coopmat<float, gl_ScopeSubgroup, matrix_m, matrix_n, gl_MatrixUseAccumulator>
    y[columns_each * row_tiles];

/// Whether this subgroup has a column tile of that index, and where it begins.
bool has_column(uint i) { return gl_SubgroupID + i * subgroups < column_tiles; }
uint column_of(uint i) { return (gl_SubgroupID + i * subgroups) * matrix_n; }

void add_values() {
  [[unroll]] for (uint r = 0; r < row_tiles; ++r) {
    coopmat<float, gl_ScopeSubgroup, matrix_m, matrix_n, gl_MatrixUseAccumulator> rescale;
    coopMatLoad(rescale, rescale_tile, r * matrix_m * matrix_n / 4, matrix_n / 4,
                gl_CooperativeMatrixLayoutRowMajor);
    [[unroll]] for (uint i = 0; i < columns_each; ++i) {
      y[i * row_tiles + r] = y[i * row_tiles + r] * rescale;
    }
  }
  [[unroll]] for (uint key = 0; key < key_tile; key += matrix_k) {
    coopmat<float16_t, gl_ScopeSubgroup, matrix_m, matrix_k, gl_MatrixUseA> weights[row_tiles];
    [[unroll]] for (uint r = 0; r < row_tiles; ++r) {
      coopMatLoad(weights[r], weight_tile, r * matrix_m * weight_stride + key / 4, weight_stride,
                  gl_CooperativeMatrixLayoutRowMajor);
    }
    [[unroll]] for (uint i = 0; i < columns_each; ++i) {
      if (!has_column(i)) continue;
      coopmat<float16_t, gl_ScopeSubgroup, matrix_k, matrix_n, gl_MatrixUseB> v;
      coopMatLoad(v, kv_tile, key * dim_stride + column_of(i) / 4, dim_stride,
                  gl_CooperativeMatrixLayoutRowMajor);
      [[unroll]] for (uint r = 0; r < row_tiles; ++r) {
        y[i * row_tiles + r] = coopMatMulAdd(weights[r], v, y[i * row_tiles + r]);
      }
    }
  }
}

/// Part `i` of y from score_tile to memory.
void write_part(uint i, Item item, HeadTile heads) {
  for (uint q = gl_SubgroupInvocationID; q < matrix_quads; q += subgroup_size) {
    const uint row = i % row_tiles * matrix_m + q / (matrix_n / 4);
    const uint quad = column_of(i / row_tiles) / 4 + q % (matrix_n / 4);
    if (!has_row(item, heads, row) || quad >= column_quads) continue;
    write_quad(item, heads, row, quad, score_tile[gl_SubgroupID * matrix_quads + q], row_stats[row]);
  }
}

/// Adds up each row's sum over its slices.
void store_row_stats(uint lane) {
  [[unroll]] for (uint i = 0; i < row_rounds; ++i) {
    precise float sum = row_sum[i];
    sum += subgroupShuffleXor(sum, 1);
    sum += subgroupShuffleXor(sum, 2);
    const uint row = (i * workgroup_size + lane) / slices;
    if (lane % slices == 0 && row < tile_rows) row_stats[row] = vec2(row_max[i], sum);
  }
}

/// Through shared memory: a cooperative matrix is stored whole or not at all. All subgroups reach
/// every barrier: lavapipe makes a workgroup's of a subgroup's.
void write_out(Item item, HeadTile heads) {
  [[unroll]] for (uint i = 0; i < columns_each * row_tiles; ++i) {
    if (has_column(i / row_tiles)) {
      coopMatStore(y[i], score_tile, gl_SubgroupID * matrix_quads, matrix_n / 4,
                   gl_CooperativeMatrixLayoutRowMajor);
    }
    subgroupBarrier();
    if (has_column(i / row_tiles)) write_part(i, item, heads);
    subgroupBarrier();
  }
}

// Of a workgroup: y's matrices [subgroup][columns_each][row_tiles], and vec2 (maximum, sum)
// [row_rounds][lane].
const uint carried_y_bytes = subgroups * columns_each * row_tiles * matrix_quads * 16;
const uint carried_bytes = carried_y_bytes + row_rounds * workgroup_size * 8;

uint carried_matrix(uint i) {
  return (gl_SubgroupID * columns_each * row_tiles + i) * matrix_quads;
}

void load_carried(uint lane) {
  const uvec2 carried = carried_address(carried_bytes);
  const uvec2 carried_stats = address_add(carried, carried_y_bytes);
  [[unroll]] for (uint i = 0; i < row_rounds; ++i) {
    const vec2 stats = Vec2s(carried_stats).v[i * workgroup_size + lane];
    row_max[i] = stats.x;
    row_sum[i] = stats.y;
  }
  [[unroll]] for (uint i = 0; i < columns_each * row_tiles; ++i) {
    coopMatLoad(y[i], Vec4s(carried).v, carried_matrix(i), matrix_n / 4,
                gl_CooperativeMatrixLayoutRowMajor);
  }
}

void store_carried(uint lane) {
  const uvec2 carried = carried_address(carried_bytes);
  const uvec2 carried_stats = address_add(carried, carried_y_bytes);
  [[unroll]] for (uint i = 0; i < row_rounds; ++i) {
    Vec2s(carried_stats).v[i * workgroup_size + lane] = vec2(row_max[i], row_sum[i]);
  }
  [[unroll]] for (uint i = 0; i < columns_each * row_tiles; ++i) {
    coopMatStore(y[i], Vec4s(carried).v, carried_matrix(i), matrix_n / 4,
                 gl_CooperativeMatrixLayoutRowMajor);
  }
}

/// The state before any key.
void begin_rows(Item item, uint lane) {
  [[unroll]] for (uint i = 0; i < row_rounds; ++i) {
    const uint token = (i * workgroup_size + lane) / slices / tile_heads;
    row_max[i] = kNoKey;
    row_sum[i] = 0.0;
    row_begin[i] = 0;
    row_end[i] = 0;
    if (token < item.n_rows) {
      const uvec2 keys = visible_keys(item, item.first_row + token);
      row_begin[i] = keys.x;
      row_end[i] = keys.y;
    }
  }
  [[unroll]] for (uint i = 0; i < columns_each * row_tiles; ++i) {
    y[i] = coopmat<float, gl_ScopeSubgroup, matrix_m, matrix_n, gl_MatrixUseAccumulator>(0.0);
  }
}

/// q into q_tile, not yet scaled, and zeros behind head_dim of both tiles.
void load_q_tile(Item item, HeadTile heads, uint lane) {
  for (uint i = lane; i < tile_rows * padded_dim / 4; i += workgroup_size) {
    const uint row = i / (padded_dim / 4);
    const uint quad = i % (padded_dim / 4);
    vec4 q = vec4(0.0);
    if (has_row(item, heads, row) && quad < head_dim / 4) q = load_q(item, heads, row, quad);
    q_tile[row * dim_stride + quad] = to_half(q);
  }
  for (uint i = lane; i < key_tile * padding_stride; i += workgroup_size) {
    const uint quad = head_dim / 4 + i % padding_stride;
    kv_tile[i / padding_stride * dim_stride + quad] = f16vec4(0.0hf);
  }
}

void main() {
  // Neighbouring invocations of a subgroup share a row, whatever gl_LocalInvocationIndex says.
  const uint lane = gl_SubgroupID * subgroup_size + gl_SubgroupInvocationID;
  Item item = load_item(gl_WorkGroupID.x);
  const uint begin = take_keys(item, key_tile);
  if (is_over(item, begin)) return;
  const HeadTile heads = load_head_tile();
  const uint k_offset = pc.layer_offset + k_head_offset(heads.kv_head, k_type);
  const uint v_offset =
      pc.layer_offset + v_head_offset(heads.kv_head, pc.n_kv_heads, k_type, v_type);

  begin_rows(item, lane);
  if (goes_on()) load_carried(lane);
  fetch(item, begin, k_offset, false, lane);
  load_q_tile(item, heads, lane);
  for (uint first_key = begin; first_key < item.kv_end; first_key += key_tile) {
    store(false, lane);
    barrier();
    fetch(item, first_key, v_offset, true, lane);
    score_keys();
    barrier();
    store(true, lane);
    softmax(first_key, lane);
    barrier();
    if (first_key + key_tile < item.kv_end) {
      fetch(item, first_key + key_tile, k_offset, false, lane);
    }
    add_values();
    barrier();
  }
  if (pauses(item)) {
    store_carried(lane);
    return;
  }
  store_row_stats(lane);
  barrier();
  write_out(item, heads);
}
