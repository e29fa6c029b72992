// What the variants of flash_attention share: the work list, the rows of a tile, windows, soft caps, K
// and V, and how results are written.
#ifndef PUMICE_SHADERS_FLASH_ATTENTION_ATTENTION_ITEM_GLSL
#define PUMICE_SHADERS_FLASH_ATTENTION_ATTENTION_ITEM_GLSL

#include "flash_attention/kv_elements.glsl"
#include "flash_attention/online_softmax.glsl"

const uint value_dim = latent_dim != 0 ? latent_dim : v_dim;
const uint column_quads = value_dim / 4;

struct Item {  // AttentionItem
  uint first_row, n_rows, seq, kv_begin, kv_end, partial;
};

Item load_item(uint index) {
  Uints words = Uints(pc.items);
  const uint first = index * 6;
  return Item(words.v[first], words.v[first + 1], words.v[first + 2], words.v[first + 3],
              words.v[first + 4], words.v[first + 5]);
}

bool is_partial(Item item) { return item.partial != 0xFFFFFFFFu; }

/// The heads of a workgroup's tile, all of one kv head. Row `row` of the tile is token row / tile_heads
/// of the item and head row % tile_heads of these.
struct HeadTile {
  uint kv_head, first_head, n_heads;
};

HeadTile load_head_tile() {
  const uint tiles_each = (group + tile_heads - 1) / tile_heads;  // of a kv head
  const uint index = pc.first_head_tile + gl_WorkGroupID.y;
  const uint kv_head = index / tiles_each;
  const uint head_in_group = index % tiles_each * tile_heads;
  return HeadTile(kv_head, kv_head * group + head_in_group, min(tile_heads, group - head_in_group));
}

/// Whether a row of the tile is one of the item and of the heads; the last tile of either may have more.
bool has_row(Item item, HeadTile heads, uint row) {
  return row / tile_heads < item.n_rows && row % tile_heads < heads.n_heads;
}

/// Four numbers of the q of such a row.
vec4 load_q(Item item, HeadTile heads, uint row, uint quad) {
  const uint first = (item.first_row + row / tile_heads) * pc.q_stride +
                     (heads.first_head + row % tile_heads) * head_dim;
  return Vec4s(pc.q).v[first / 4 + quad];
}

/// Keys [x, y) of the item are visible to row `row` of q. Without a window x is 0: none is hidden.
uvec2 visible_keys(Item item, uint row) {
  const uint position = Uints(pc.positions).v[row];
  const uint first = position >= window ? position + 1 - window : 0;
  return uvec2(window != 0 ? max(item.kv_begin, first) : 0, min(item.kv_end, position + 1));
}

/// Where the first KV tile of `tile_keys` keys begins. A window may begin at any block: tiles then lie
/// at multiples of their size, so that a row's keys share tiles in the same way whatever other rows
/// its item has. Keys of a tile before kv_begin may have no KV and no entry in the block table.
uint first_tile_key(Item item, uint tile_keys) {
  return window != 0 ? item.kv_begin / tile_keys * tile_keys : item.kv_begin;
}

/// How many keys of the tile at `first_key` lie before kv_begin: whole blocks.
uint keys_before(Item item, uint first_key) {
  return window != 0 && item.kv_begin > first_key ? item.kv_begin - first_key : 0;
}

/// Cuts the item behind the KV tiles that the dispatch goes over; returns the first key of these.
uint take_keys(inout Item item, uint tile_keys) {
  const uint first = first_tile_key(item, tile_keys) + pc.first_key_tile * tile_keys;
  const uint n_left = item.kv_end > first ? (item.kv_end - first + tile_keys - 1) / tile_keys : 0;
  if (pc.n_key_tiles < n_left) item.kv_end = first + pc.n_key_tiles * tile_keys;
  return first;
}

/// Whether earlier dispatches went over keys of the item.
bool goes_on() { return pc.first_key_tile != 0; }
/// Whether they went over all of them.
bool is_over(Item item, uint first_key) { return goes_on() && first_key >= item.kv_end; }
/// Whether another dispatch goes on with it. Looks it up again: kept over the KV tiles, the answer
/// would take a register where these are scarcest.
bool pauses(Item item) { return load_item(gl_WorkGroupID.x).kv_end != item.kv_end; }

/// Where a workgroup keeps what it carries: `size_bytes` for each of the dispatch. Asked for
/// where it is used, likewise.
uvec2 carried_address(uint size_bytes) {
  return address_add(pc.carried,
                     (gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x) * size_bytes);
}

/// Whether `key` is below `bound`, which is where a window begins; no key is without one.
bool is_behind(uint key, uint bound) { return window != 0 && key < bound; }

/// Where a head's values begin, and four numbers of one: in V, or in K where keys have them.
uint value_head_offset(uint kv_head) {
  return latent_dim != 0 ? k_head_offset(kv_head, k_type)
                         : v_head_offset(kv_head, pc.n_kv_heads, k_type, v_type);
}
vec4 load_value(uvec2 address, uint token, uint quad) {
  return latent_dim != 0 ? load_quad_of_k(k_type, address, token, quad)
                         : load_v(v_type, address, token, quad);
}

/// What the softmax is of: `score`, in base 2, under the soft cap.
float capped_score(float score) {
  return soft_cap != 0.0 ? soft_capped(score, soft_cap * kLog2E) : score;
}

/// Writes four columns of a row of the tile, of which `stats` are maximum and sum: as they are, with these,
/// if other items have more of the row's keys; otherwise divided by the sum.
void write_quad(Item item, HeadTile heads, uint row, uint quad, vec4 value, vec2 stats) {
  const uint token = row / tile_heads;
  const uint head = heads.first_head + row % tile_heads;
  if (is_partial(item)) {
    const uint slot_head = (item.partial + token) * (pc.n_kv_heads * group) + head;
    Vec4s(pc.partial_y).v[slot_head * column_quads + quad] = value;
    if (quad == 0) Vec2s(pc.partial_stats).v[slot_head] = stats;
  } else {
    float sum = stats.y;
    if (has_sinks != 0) sum += sink_weight(Floats(pc.sinks).v[head], stats.x);
    const uint first_quad = (item.first_row + token) * pc.y_stride / 4 + head * column_quads;
    Vec4s(pc.y).v[first_quad + quad] = sum > 0.0 ? value / sum : vec4(0.0);
  }
}

#endif
