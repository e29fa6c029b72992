// Scores are kept in base 2 (q is scaled by log2(e)), finite and well inside the range of a float, so
// no step of the online softmax meets an infinity.
#ifndef PUMICE_SHADERS_FLASH_ATTENTION_ONLINE_SOFTMAX_GLSL
#define PUMICE_SHADERS_FLASH_ATTENTION_ONLINE_SOFTMAX_GLSL

const float kLog2E = 1.44269504088896340736;
const float kScoreLimit = 1e38;
const float kNoKey = -3e38;  // the maximum over no keys

/// 2^(score - maximum), or 0 where `score` is that of no key. Exactly 1 at the maximum, whatever exp2
/// is worth on the device, so that going over keys a row cannot see leaves its bits alone.
float softmax_weight(float score, float maximum) {
  if (score == maximum) return score < -kScoreLimit ? 0.0 : 1.0;
  return score < -kScoreLimit ? 0.0 : exp2(score - maximum);
}

#endif
