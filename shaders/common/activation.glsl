// Activations that stay finite for every finite x: no exponent is positive.
#ifndef PUMICE_SHADERS_COMMON_ACTIVATION_GLSL
#define PUMICE_SHADERS_COMMON_ACTIVATION_GLSL

#include "common/activation.h"

/// Beyond it exp(-x) is zero in fp32, subnormals included.
const float kMostExponent = 150.0;

float silu(float x) {
  const float e = exp(-abs(x));
  return (x >= 0.0 ? x : x * e) / (1.0 + e);
}

float sigmoid(float x) {
  const float e = exp(-abs(x));
  return (x >= 0.0 ? 1.0 : e) / (1.0 + e);
}

/// max(x, 0) - t Q(t) with t = |x| and Q(t) = erfc(t / √2) / 2, the normal distribution's tail, so
/// that nothing cancels for negative x. exp(t²/2) Q(t) is a polynomial of u = 1 / (1 + 0.31 t)
/// without a constant term, interpolated at Chebyshev points of t in [0, 12]: relative error 1.9e-7
/// before rounding.
float gelu(float x) {
  const float t = abs(x);
  const float u = 1.0 / fma(t, 0.31, 1.0);
  float p = 0.0357725981;
  p = fma(p, u, -0.141343887);
  p = fma(p, u, 0.154661803);
  p = fma(p, u, -0.0145614532);
  p = fma(p, u, 0.109938557);
  p = fma(p, u, 0.107823866);
  p = fma(p, u, 0.124050934);
  p = fma(p, u, 0.123657654);
  const float tail = p * u * exp(-min(0.5 * t * t, kMostExponent));
  return max(x, 0.0) - t * tail;
}

/// (1 + tanh(z)) / 2 is 1 / (1 + exp(-2z)).
float gelu_tanh(float x) {
  const float two_z = 1.59576912 * fma(0.044715 * x * x, x, x);
  const float e = exp(-min(abs(two_z), kMostExponent));
  return (x >= 0.0 ? x : x * e) / (1.0 + e);
}

/// `kind` is a specialisation constant, so that one of them remains.
float activation(uint kind, float x) {
  if (kind == ACTIVATION_SILU) return silu(x);
  if (kind == ACTIVATION_GELU) return gelu(x);
  if (kind == ACTIVATION_GELU_TANH) return gelu_tanh(x);
  if (kind == ACTIVATION_SIGMOID) return sigmoid(x);
  return x < 0.0 ? 0.0 : x;  // of a NaN a NaN
}

#endif
