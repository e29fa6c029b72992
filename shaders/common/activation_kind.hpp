// The activations that models have, of one number.
#pragma once

namespace pumice {

enum class ActivationKind {
  kSilu,      ///< x / (1 + exp(-x))
  kGelu,      ///< x (1 + erf(x / √2)) / 2
  kGeluTanh,  ///< x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2
  kSigmoid,   ///< 1 / (1 + exp(-x))
  kRelu,      ///< max(x, 0)
};

}  // namespace pumice
