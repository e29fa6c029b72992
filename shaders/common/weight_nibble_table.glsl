// Blocks of a unit of nibbles that select one of 16 int8: the type's kTableBytes, as bytes of four words (an array
// indexed by data would live in memory). Included by files of shaders/weights.
#ifndef PUMICE_SHADERS_COMMON_WEIGHT_NIBBLE_TABLE_GLSL
#define PUMICE_SHADERS_COMMON_WEIGHT_NIBBLE_TABLE_GLSL

#define WEIGHT_NIBBLE_TABLE 1  // every block is a unit of nibbles, `unit` of WeightBlock

/// The value that a nibble selects.
int table_value(uint index) {
  const uint low = (index & 4u) != 0 ? kTableBytes.y : kTableBytes.x;
  const uint high = (index & 4u) != 0 ? kTableBytes.w : kTableBytes.z;
  return bitfieldExtract(int((index & 8u) != 0 ? high : low), int(index & 3u) * 8, 8);
}

/// The four values that the nibbles of a word select (bytes of 0 to 15).
uint table_bytes(uint nibbles) {
  uint word = 0;
  [[unroll]] for (int i = 0; i < 4; ++i) {
    word |= uint(table_value(bitfieldExtract(nibbles, 8 * i, 4)) & 0xFF) << (8 * i);
  }
  return word;
}

struct WeightBlock {
  WeightUnit unit;
};
WeightBlock open_weight_block(WeightTile t, uint block) {
  return WeightBlock(weight_unit(t, block));
}
uint weight_codes(WeightBlock b, int h, int k) {
  return table_bytes(nibble_bytes(unit_word(b.unit, k), h, 0));
}

#define WEIGHT_SINGLE_CODES 1
const float kSingleCodes = 1.0;
int single_code(WeightBlock b, int h, int k, int i) {
  return table_value(bitfieldExtract(unit_word(b.unit, k), 8 * i + 4 * h, 4));
}

#endif
