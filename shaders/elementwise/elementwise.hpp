// One number of y from one of a, or of a and b: what a model computes between its matrix products
// and that no other op has fused in.
#pragma once

#include "base/result.hpp"
#include "vk/memory.hpp"
#include "vk/pipeline.hpp"
#include "vk/recorder.hpp"

namespace pumice::ops {

class Elementwise {
 public:
  enum class Kind {
    kAdd,         ///< a + b
    kMul,         ///< a * b
    kMulGroups,   ///< a * b, where b has a number for each b_group consecutive ones of a
    kAddBias,     ///< a + b, where b is one row for all
    kSilu,        ///< a / (1 + exp(-a))
    kGelu,        ///< a (1 + erf(a / √2)) / 2
    kGeluTanh,    ///< a (1 + tanh(√(2/π) (a + 0.044715 a³))) / 2
    kSigmoid,     ///< 1 / (1 + exp(-a))
    kRelu,        ///< max(a, 0)
    kScale,       ///< a * factor
    kSoftCap,     ///< factor * tanh(a / factor)
    kAtMost,      ///< min(a, factor)
    kWithin,      ///< a between -factor and factor
    kCopy,        ///< a, bit for bit
    kCopyGroups,  ///< of every a_group numbers of a the first y_group, bit for bit
    kXielu,       ///< alpha_p a² + factor a where a > 0, else alpha_n (exp(min(a, eps)) - 1 - a) +
                  ///< factor a
  };
  /// Constants of kXielu besides its factor.
  struct Xielu {
    float alpha_p = 0;
    float alpha_n = 0;
    float eps = 0;
  };

  /// Strides are in floats. Loads are of 16 bytes where n, the strides and the arrays' addresses
  /// are multiples of that.
  struct Args {
    vk::BufferRange a;  ///< float [*][a_stride], n of each row are read
    uint32_t a_stride = 0;
    vk::BufferRange b = {};  ///< float [*][b_stride], likewise; of the kinds that name it
    uint32_t b_stride = 0;   ///< 0: one row for all, as kAddBias must have it
    uint32_t b_group = 1;    ///< of kMulGroups: divides n
    uint32_t a_group = 0;    ///< of kCopyGroups: at least y_group
    uint32_t y_group = 1;    ///< of kCopyGroups: divides n
    vk::BufferRange y;       ///< float [rows][y_stride], n of each row are written. May be a
                             ///< or b with the same stride, if there is no row_index
    uint32_t y_stride = 0;
    uint32_t rows = 0;  ///< at most 65535; rows times each stride below 2^32
    uint32_t n = 0;
    float factor = 1;  ///< of kScale, kSoftCap, kAtMost, kWithin (these above 0) and kXielu
    Xielu xielu = {};
    vk::BufferRange row_index = {};  ///< uint32 [rows]: the row of a and b behind each row of y;
                                     ///< empty for the identity
  };

  static Result<Elementwise> plan(vk::PipelineLibrary& pipelines, Kind kind);

  void record(vk::Recorder& recorder, const Args& args) const;

 private:
  Kind kind_ = Kind::kCopy;
  const vk::Pipeline* pipeline_ = nullptr;
  uint32_t columns_per_workgroup_ = 0;
};

}  // namespace pumice::ops
