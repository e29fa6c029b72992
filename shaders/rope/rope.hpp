// The rotary position embedding of heads by itself, where rope_kv does not compute it: norms come
// after it, q and k turn differently, or there are no keys of the same row. Su et al., "RoFormer",
// 2021.
#pragma once

#include "base/result.hpp"
#include "shaders/rope_kv/rope_kv.hpp"
#include "vk/memory.hpp"
#include "vk/pipeline.hpp"
#include "vk/recorder.hpp"

namespace pumice::ops {

class Rope {
 public:
  struct Shape {
    uint32_t head_dim = 0;
    uint32_t rope_dims = 0;  ///< even, 2 to head_dim; the elements after them stay
    RopePairs pairs = RopePairs::kAdjacent;

    bool operator==(const Shape&) const = default;
  };

  struct Args {
    /// float [rows][x_stride], n_heads heads of each updated in place; from the first number of a
    /// head on that turns.
    vk::BufferRange x;
    vk::BufferRange rope_table;  ///< vec2 [n_positions][rope_dims / 2] (rope_table.hpp)
    vk::BufferRange positions;   ///< uint32 [rows]
    uint32_t rows = 0;
    uint32_t n_heads = 0;
    uint32_t x_stride = 0;  ///< floats; rows times it below 2^32
  };

  /// Errors: kInvalidArgument for a shape out of range.
  static Result<Rope> plan(vk::PipelineLibrary& pipelines, const Shape& shape);

  void record(vk::Recorder& recorder, const Args& args) const;

 private:
  Shape shape_;
  const vk::Pipeline* pipeline_ = nullptr;
};

}  // namespace pumice::ops
