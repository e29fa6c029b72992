// Points of the grids of the IQ types (format/weight_grids.hpp), whose numbers blocks hold. Included by their
// files of shaders/weights.
//
// The grid is read from a buffer, whose address the kernel must give first: use_weight_grid(pc.grid). As a
// constant array lavapipe would copy it to every lane's stack (a gemv took more than a minute); on GPUs its
// 1 to 8 KiB stay in the nearest cache and take no shared memory from kernels that need all there is.
#ifndef PUMICE_SHADERS_COMMON_WEIGHT_GRID_GLSL
#define PUMICE_SHADERS_COMMON_WEIGHT_GRID_GLSL

#define WEIGHT_GRID 1

uvec2 weight_grid;

uint grid_point(uint number) { return WeightWords(weight_grid).at[number]; }

/// Word `block` of two units, of which `first` is the one of sub-blocks 0 to 3.
uint word_of_block(WeightTile t, uint first, uint block) {
  return unit_word(weight_unit(t, first + (block >> 2)), block & 3u);
}

/// Seven signs and the one that makes the number of negative values even, for each of four groups of
/// eight values.
uint even_signs(uint sevens) {
  uint signs = 0;
  [[unroll]] for (int g = 0; g < 4; ++g) {
    const uint seven = bitfieldExtract(sevens, 7 * g, 7);
    signs |= (seven | (uint(bitCount(seven)) & 1u) << 7) << (8 * g);
  }
  return signs;
}

/// Bytes that are not zero, made negative where the low four bits of `signs` say so.
uint signed_bytes(uint bytes, uint signs) {
  const uint ones = ((signs & 15u) * 0x00204081u) & 0x01010101u;
  return (bytes ^ (ones * 255u)) + ones;
}

/// Half `half_point` of a point of eight codes, as bytes.
uint codes_of_point(uint point, int half_point) { return (point >> (4 * half_point)) & 0x0F0F0F0Fu; }

/// Codes 0, 1, 2 as the magnitudes 8, 25, 43 of IQ2.
uint iq2_magnitudes(uint codes) {
  return codes * 17u + ((codes >> 1) & 0x01010101u) + 0x08080808u;
}

/// Codes 0, 1, 2 as eight times -1, 0, 1 and one more or less, which no byte carries into the next.
uint iq1_bytes(uint codes, bool less) {
  return ((codes << 3) + (less ? 0x77777777u : 0x79797979u)) ^ 0x80808080u;
}

#endif
