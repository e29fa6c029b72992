// The size of a recurrence's step.
#ifndef PUMICE_SHADERS_RECURRENCE_SOFTPLUS_GLSL
#define PUMICE_SHADERS_RECURRENCE_SOFTPLUS_GLSL

/// log(1 + exp(x)) = max(x, 0) + log(1 + e) with e = exp(-|x|): twice the series of the area tangent
/// of e / (2 + e), which is at most 1/3. Vulkan's logarithm is not precise near 1.
float softplus(float x) {
  const float e = exp(-abs(x));
  const float z = e / (2.0 + e);
  const float s = z * z;
  float p = 1.0 / 15.0;
  p = fma(p, s, 1.0 / 13.0);
  p = fma(p, s, 1.0 / 11.0);
  p = fma(p, s, 1.0 / 9.0);
  p = fma(p, s, 1.0 / 7.0);
  p = fma(p, s, 0.2);
  p = fma(p, s, 1.0 / 3.0);
  return max(x, 0.0) + 2.0 * fma(z * s, p, z);
}

#endif
