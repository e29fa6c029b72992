// The one layout in which a weight matrix lives in GPU memory. GEMM, GEMV and embedding shaders all
// read it through shaders/common/weights.glsl.
//
// A matrix has n_rows output features (dims[1] of the tensor) and n_cols inputs (dims[0], K). Rows
// are taken in groups of 32, columns in tiles of `tile_cols`; tiles are stored in the order
// [row group][column tile], each of them
//
//   n_units × 32 rows × 16 bytes     [unit][row of the group]
//   n_words × 32 rows × 4 bytes      [word][row of the group]
//
// so 32 lanes that each own a row read 512 consecutive bytes. Rows and columns beyond the matrix
// are zero weights. Words are little-endian. A row, of every tile:
//
//   F32     32 cols   8 units  4 floats each
//   F16     32 cols   4 units  8 halves each; BF16 likewise
//   Q8_0    64 cols   4 units  16 int8 each, two a block           1 word   two half scales
//   Q4_0    64 cols   2 units  nibbles − 8 of a block each         1 word   two half scales
//   IQ4_NL  64 cols   2 units  nibbles of a block each             1 word   two half scales
//   Q4_1    64 cols   2 units  nibbles of a block each             2 words  half d, half m of a
//                                                                           block each
//   Q5_0    64 cols   2 units  low nibbles of a block each         3 words  two half scales; high
//                                                                           bits of a block each
//   Q5_1    64 cols   2 units  low nibbles of a block each         4 words  half d, half m of a
//                                                                           block each; high bits
//                                                                           likewise
//   Q2_K   256 cols   5 units  scales; pairs                       1 word   half d, half dmin
//   Q3_K   256 cols   7 units  16 int8 scales; pairs; high bits    1 word   half d
//   Q4_K   256 cols   9 units  K scales; nibbles of a sub-block each
//   Q5_K   256 cols  11 units  K scales; low nibbles; high bits
//   Q6_K   256 cols  13 units  low nibbles; pairs; 16 int8 scales  1 word   half d
//   IQ4_XS 256 cols   8 units  nibbles of a sub-block each         2 words  half d, high bits of
//                                                                           scales; their low bits
//   MXFP4  128 cols   4 units  nibbles of a block each             1 word   four exponents
//   TQ2_0  256 cols   4 units  pairs                               1 word   half d; TQ1_0 likewise
// IQ1 to IQ3 hold the file's fields in units, in an order said in weight_codecs_iq.hpp: numbers of
// points, high bits, signs, scales; their grids lie beside the matrix (WeightMatrix::grid).
//
// Signed values are stored in two's complement of as many bits: Q4_0 nibble − 8, Q5_0 − 16,
// Q3_K − 4, Q6_K − 32. A sub-block is 32 columns and "half" says its first or last 16; b counts
// sub-blocks.
//   Nibbles: byte j of the unit's 16 holds value j in its low and value j + 16 in its high half, so
//     masking a word gives four consecutive values as bytes.
//   Pairs: two sub-blocks a unit; sub-block b has the words 2(b % 2) + half. Bits 2k, 2k + 1 of
//     byte i belong to value 16 half + 4k + i. In Q6_K they are the high two bits.
//   High bits: a word a sub-block. Bit k + 4 half of byte i belongs to value 16 half + 4k + i.
//   K scales: word 0 is d and dmin as halves; nibble b of word 1 and of word 2 are the low four
//     bits of sub-block b's scale and minimum, nibble b of word 3 their high two bits each (scale
//     low).
//   Q2_K scales: byte 2b + half is its scale (low nibble) and minimum (high nibble).
//   int8 scales: byte 2b + half.
#pragma once

#include <cstddef>
#include <cstdint>

#include "format/weight_type.hpp"

namespace pumice {

inline uint64_t n_row_groups(uint64_t n_rows) { return (n_rows + kRowGroup - 1) / kRowGroup; }
inline uint64_t n_col_tiles(const WeightType& type, uint64_t n_cols) {
  return (n_cols + type.layout.tile_cols - 1) / type.layout.tile_cols;
}

/// Bytes of 32 rows. Row group g starts at g * row_group_bytes(), so a matrix can be split between
/// memory slabs at any row group, and matrices whose row counts are multiples of 32 can be
/// concatenated along rows.
inline uint64_t row_group_bytes(const WeightType& type, uint64_t n_cols) {
  return n_col_tiles(type, n_cols) * type.layout.tile_bytes();
}
inline uint64_t resident_bytes(const WeightType& type, uint64_t n_rows, uint64_t n_cols) {
  return n_row_groups(n_rows) * row_group_bytes(type, n_cols);
}

/// Write row groups [first, first + count) of a matrix to `dst`, the address of the first of them.
/// `blocks` is the whole matrix as in the file: n_rows rows of type.file_bytes(n_cols) bytes, at
/// any alignment. `dst` is written sequentially and never read, so it may be mapped GPU memory. The
/// type must have a codec and n_cols be a multiple of its block_elements. May run on several
/// threads.
void repack(const WeightType& type, const std::byte* blocks, uint64_t n_rows, uint64_t n_cols,
            uint64_t first_row_group, uint64_t count, std::byte* dst);

/// The n_cols weights of one row of a resident matrix, as the shaders see them.
void unpack_row(const WeightType& type, const std::byte* resident, uint64_t n_cols, uint64_t row,
                float* out);

}  // namespace pumice
