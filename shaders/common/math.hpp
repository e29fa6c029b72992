// How precisely products may be computed: `--math`. Ops choose their variants by it.
#pragma once

namespace pumice::ops {

enum class Math {
  kAuto,  ///< the fastest of the device: kF16 with matrix cores, else what is fastest there
  kF32,   ///< fp32 throughout
  kF16,   ///< fp16 inputs, fp32 sums
  kI8,    ///< inputs quantised to 8 bits in blocks, exact integer sums within a block
};

}  // namespace pumice::ops
