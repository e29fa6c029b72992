// Activations in fewer bits, for products that take them so. To blocks of 32 int8 for integer dot
// products; of each block:
//   scale = largest magnitude / 127 (zero below 1e-30), q = x / scale rounded to nearest,
//   and the sums of its first and last 16 q, which weights with an offset are multiplied with.
// Or to two planes of int8 each, 256 times as fine, for the same dot products of few rows: scale = largest
// magnitude / 32512, x / scale rounded to nearest is 256 * high + low.
// Or to halves for matrix cores, rounded to nearest; what exceeds them saturates.
#pragma once

#include <string_view>

#include "base/result.hpp"
#include "shaders/quantize_x/quantize_x.h"
#include "vk/memory.hpp"
#include "vk/pipeline.hpp"
#include "vk/recorder.hpp"

namespace pumice::ops {

/// Quantised rows: int8 [k / 32][rows][32], then [k / 32][rows] of a float scale and two int16
/// sums. Blocks are outermost, so that what a tile of rows needs of a block lies together.
struct QuantizedX {
  static constexpr uint32_t kBlockCols = 32;
  static uint64_t scales_offset(uint64_t rows, uint64_t k) { return rows * k; }
  static uint64_t size_bytes(uint64_t rows, uint64_t k) {
    return scales_offset(rows, k) + rows * (k / kBlockCols) * 8;
  }
};

/// Rows of halves, zero past column k. Every four columns are in the order 0 2 1 3, as
/// shaders/common/weights_halves.glsl has them.
struct HalvedX {
  static uint32_t stride(uint32_t k) { return (k + HALVED_COLS - 1) / HALVED_COLS * HALVED_COLS; }
  static uint64_t size_bytes(uint64_t rows, uint32_t k) { return rows * stride(k) * 2; }
};

/// Rows in planes: of each block of 32 columns int8 high[32], int8 low[32], and as floats the scale
/// and the sums of the first 16, the last 16 and all of 256 * high + low, as
/// shaders/common/x_planes.glsl has them. A row by itself, so that it does not depend on others.
struct PlanesOfX {
  static constexpr uint32_t kBlockCols = 32;
  static constexpr uint32_t kBlockBytes = 80;
  static uint32_t stride_bytes(uint32_t k) { return k / kBlockCols * kBlockBytes; }
  static uint64_t size_bytes(uint64_t rows, uint32_t k) { return rows * stride_bytes(k); }
};

/// What products read. Rows in a form are multiples of 16 bytes before those in the next.
enum class XForm { kFloats, kHalves, kInt8, kPlanes };

/// Bytes of rows in a form, those of floats not counted.
uint64_t x_form_bytes(XForm form, uint64_t rows, uint32_t k);

/// The module that makes a form.
std::string_view x_form_module(XForm form);

class QuantizeX {
 public:
  struct Args {
    vk::BufferRange x;      ///< float [rows][x_stride], 16-byte aligned; k columns are read
    uint32_t x_stride = 0;  ///< floats, a multiple of 4
    uint32_t rows = 0;      ///< of kInt8 at most 65535
    uint32_t k = 0;         ///< a multiple of 32, of kHalves of 4
    vk::BufferRange y;      ///< x_form_bytes(form, rows, k), 16-byte aligned
  };

  /// `form` is not kFloats.
  static Result<QuantizeX> plan(vk::PipelineLibrary& pipelines, XForm form = XForm::kInt8);

  void record(vk::Recorder& recorder, const Args& args) const;

 private:
  XForm form_ = XForm::kInt8;
  const vk::Pipeline* pipeline_ = nullptr;
  uint32_t workgroup_size_ = 0;
};

}  // namespace pumice::ops
