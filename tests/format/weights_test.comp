#version 460

#include "common/buffers.glsl"
#if defined(READ_ELEMENTS)
#include "common/weights_element.glsl"
#else
#include "common/weights.glsl"
#endif
#if defined(READ_BYTES)
#include "common/weights_int8.glsl"
#endif
#include "weights_test.h"

// Lane = row: write all its weights, read a block at a time or a tile at a time, or as bytes with scales
// and offsets (READ_BYTES), or one by one (READ_ELEMENTS).
layout(local_size_x_id = 0) in;

void write_block(uint row, uint block, float w[32]) {
  if (block >= pc.n_blocks) return;
  const uint first = (row * pc.n_blocks + block) * 32;
  [[unroll]] for (int i = 0; i < 32; ++i) Floats(pc.out_weights).v[first + i] = w[i];
}

void read_block(WeightTile t, uint lane, uint block, out float w[32]) {
#if defined(READ_ELEMENTS)
  const uvec2 tile_address = address_add(t.base, (t.unit - lane) * 16);
  for (uint i = 0; i < 32; ++i) w[i] = weight_element(tile_address, lane, 32 * block + i);
#elif defined(READ_BYTES)
  WeightBytes bytes;
  read_weight_bytes(t, block, bytes);
  [[unroll]] for (int i = 0; i < 32; ++i) {
    const int h = kHalfScales ? i / 16 : 0;
    const float q = signed_byte(uint(bytes.q[i / 4]), i % 4);
    precise float value = q * bytes.scale[h];
    if (kOffsets) value = fma(q, bytes.scale[h], bytes.offset[h]);
    w[i] = value;
  }
#else
  read_weight_block(t, block, w);
#endif
}

void main() {
  use_weight_grid(pc.grid);
  const uint row = gl_GlobalInvocationID.x;
  float w[32];
  if (by_tile == 0) {
    for (uint block = 0; block < pc.n_blocks; ++block) {
      load_weights32(pc.weights, pc.n_col_tiles, row, block, w);
      write_block(row, block, w);
    }
  } else {
    for (uint tile = 0; tile < pc.n_col_tiles; ++tile) {
      const WeightTile t = open_weight_tile(pc.weights, pc.n_col_tiles, row, tile);
      for (uint b = 0; b < kTileBlocks; ++b) {
        read_block(t, row & 31u, b, w);
        write_block(row, tile * kTileBlocks + b, w);
      }
    }
  }
}
