// Units of pairs, of two sub-blocks each. Included by files of shaders/weights.
#ifndef PUMICE_SHADERS_COMMON_WEIGHT_PAIRS_GLSL
#define PUMICE_SHADERS_COMMON_WEIGHT_PAIRS_GLSL

struct PairWords {
  uint of_half[2];
};

/// Of a sub-block; unit `first` holds those of sub-blocks 0 and 1.
PairWords pair_words(WeightTile t, uint first, uint block) {
  const bool odd = (block & 1u) != 0;
  PairWords words;
#ifdef WEIGHT_LANES
  if (uniform_loads != 0) {
    const uint64_t first_pair = t.first_unit + (first + (block >> 1)) * (32 * 16) + (odd ? 8 : 0);
    words.of_half[0] = lanes_word(first_pair, 4);
    words.of_half[1] = lanes_word(first_pair + 4, 4);
    return words;
  }
#endif
#ifdef X_BROADCAST
  // CPUs load a word of each lane at a time: no more than those of this block.
  const uint at = (t.unit + (first + (block >> 1)) * 32) * 4 + (odd ? 2 : 0);
  words.of_half[0] = WeightWords(t.base).at[at];
  words.of_half[1] = WeightWords(t.base).at[at + 1];
  return words;
#else
  const WeightUnit unit = weight_unit(t, first + (block >> 1));
#ifdef WEIGHT_ELEMENTS
  words.of_half[0] = unit_word(unit, odd ? 2 : 0);
  words.of_half[1] = unit_word(unit, odd ? 3 : 1);
#else
  words.of_half[0] = odd ? unit[2] : unit[0];
  words.of_half[1] = odd ? unit[3] : unit[1];
#endif
  return words;
#endif
}

#endif
