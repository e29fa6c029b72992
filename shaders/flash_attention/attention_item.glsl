// What the variants of flash_attention share: the work list, and K and V.
#ifndef PUMICE_SHADERS_FLASH_ATTENTION_ATTENTION_ITEM_GLSL
#define PUMICE_SHADERS_FLASH_ATTENTION_ATTENTION_ITEM_GLSL

#include "flash_attention/kv_elements.glsl"

struct Item {  // AttentionItem
  uint first_row, n_rows, seq, kv_begin, kv_end, partial;
};

Item load_item(uint index) {
  Uints words = Uints(pc.items);
  const uint first = index * 6;
  return Item(words.v[first], words.v[first + 1], words.v[first + 2], words.v[first + 3],
              words.v[first + 4], words.v[first + 5]);
}

#endif
