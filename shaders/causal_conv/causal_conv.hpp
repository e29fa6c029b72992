// A causal convolution of each column by itself over a sequence's rows, which goes on from the
// state that an earlier step left: the short convolutions of LFM2, Mamba and gated delta nets.
#pragma once

#include "base/result.hpp"
#include "shaders/common/state_item.h"
#include "vk/memory.hpp"
#include "vk/pipeline.hpp"
#include "vk/recorder.hpp"

namespace pumice::ops {

class CausalConv {
 public:
  static constexpr uint32_t kMostTaps = 16;

  struct Shape {
    uint32_t taps = 0;  ///< 2 to kMostTaps; the last is the row's own
    bool silu = false;  ///< of the sum

    bool operator==(const Shape&) const = default;
  };

  /// Strides are in floats; rows times each below 2^32.
  struct Args {
    vk::BufferRange x;  ///< float [rows][x_stride], n of each row are read
    uint32_t x_stride = 0;
    vk::BufferRange y;  ///< float [rows][y_stride], n of each row are written; apart from x
    uint32_t y_stride = 0;
    vk::BufferRange weight;     ///< float [n][taps]
    vk::BufferRange bias = {};  ///< float [n]; empty: none
    /// StateItem [n_items]: the rows of each sequence, all of the step's, and its pages. A state is
    /// float [taps - 1][n], what came before the next row, oldest first.
    vk::BufferRange items;
    uint32_t n_items = 0;
    vk::BufferRange row_item;         ///< uint32 [rows]: each row's item
    vk::BufferRange states;           ///< stands for all pages
    uint32_t state_offset_bytes = 0;  ///< from a page's start
    uint32_t rows = 0;                ///< at most 65535
    uint32_t n = 0;
  };

  /// Errors: kInvalidArgument for a number of taps out of range.
  static Result<CausalConv> plan(vk::PipelineLibrary& pipelines, const Shape& shape);

  void record(vk::Recorder& recorder, const Args& args) const;

 private:
  Shape shape_;
  const vk::Pipeline* pipeline_ = nullptr;
};

}  // namespace pumice::ops
