// Nibbles that select one of 16 int8, kTableBytes of the type. Included by files of shaders/weights.
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

#endif
