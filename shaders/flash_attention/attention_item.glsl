// What the variants of flash_attention share: the work list and the V plane.
#ifndef PUMICE_SHADERS_FLASH_ATTENTION_ATTENTION_ITEM_GLSL
#define PUMICE_SHADERS_FLASH_ATTENTION_ATTENTION_ITEM_GLSL

struct Item {  // AttentionItem
  uint first_row, n_rows, seq, kv_begin, kv_end, partial;
};

Item load_item(uint index) {
  Uints words = Uints(pc.items);
  const uint first = index * 6;
  return Item(words.v[first], words.v[first + 1], words.v[first + 2], words.v[first + 3],
              words.v[first + 4], words.v[first + 5]);
}

/// Elements [4 * quad, 4 * quad + 4) of the V plane at `address`.
vec4 load_v(uvec2 address, uint quad) {
  if (kv_f16 == 0) return Vec4s(address).v[quad];
  const uvec2 halves = Uvec2s(address).v[quad];
  return vec4(unpackHalf2x16(halves.x), unpackHalf2x16(halves.y));
}

#endif
