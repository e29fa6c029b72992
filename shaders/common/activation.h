// What an activation computes; values of specialisation constants.
#ifndef PUMICE_SHADERS_COMMON_ACTIVATION_H
#define PUMICE_SHADERS_COMMON_ACTIVATION_H

#define ACTIVATION_SILU 0       // x / (1 + exp(-x))
#define ACTIVATION_GELU 1       // x (1 + erf(x / √2)) / 2
#define ACTIVATION_GELU_TANH 2  // x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2
#define ACTIVATION_SIGMOID 3    // 1 / (1 + exp(-x))
#define ACTIVATION_RELU 4       // max(x, 0)

#endif
