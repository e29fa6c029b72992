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

/// What a row's sum is more by a key of that score (in base e) that has no value. Of scores far above
/// the maximum it is less than it should be, where what it divides is next to nothing.
float sink_weight(float sink, float maximum) {
  return exp2(clamp(fma(sink, kLog2E, -maximum), -150.0, 126.0));
}

/// cap * tanh(score / cap) for any finite score. Vulkan's tanh may be worth what sinh / cosh is, which
/// overflows; here tanh x = (1 - e) / (1 + e), where e = exp(-2x) is at most 1. For small x that
/// cancels, and x + x^3 P(x^2), within 2^-25 of tanh below 5/8 (relative; P interpolates at the five
/// Chebyshev nodes), is taken.
float soft_capped(float score, float cap) {
  const float x = min(abs(score) * (1.0 / cap), 16.0);  // tanh 16 is 1 in fp32
  const float e = exp2(x * (-2.0 * kLog2E));
  const float z = x * x;
  float p = fma(z, -0.00609671418, 0.0209971797);
  p = fma(z, p, -0.0538509078);
  p = fma(z, p, 0.133327693);
  p = fma(z, p, -0.333333284);
  const float y = cap * (x < 0.625 ? fma(x * z, p, x) : (1.0 - e) / (1.0 + e));
  return score < 0.0 ? -y : y;
}

#endif
