// What changes from step to step, in memory that the host writes and kernels read: token ids,
// positions, attention work lists, indirect grids, sampling parameters. Every array has a fixed
// place in its slot, so a recorded command buffer can be replayed with new contents.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "shaders/flash_attention/flash_attention.hpp"
#include "shaders/sampling/sampling.hpp"
#include "vk/memory.hpp"

namespace pumice {

/// The most a slot holds.
struct StepCapacity {
  uint32_t rows = 0;             ///< tokens in a step
  uint32_t logit_rows = 0;       ///< rows whose logits are computed
  uint32_t attention_items = 0;  ///< tile items, row items and reduce items, each, of a class
  uint32_t attention_classes = 0;
};

class StepArgs {
 public:
  static Result<StepArgs> create(const std::shared_ptr<vk::Device>& device,
                                 const StepCapacity& capacity);

  vk::BufferRange tokens;      ///< uint32 [rows]; see ops::Embedding::Args
  vk::BufferRange positions;   ///< uint32 [rows]
  vk::BufferRange row_seq;     ///< uint32 [rows]
  vk::BufferRange logit_rows;  ///< uint32 [logit_rows]: row of each row of logits
  /// Work lists of an attention class.
  struct Attention {
    vk::BufferRange tile_items;    ///< ops::AttentionItem [attention_items]
    vk::BufferRange row_items;     ///< ops::AttentionItem [attention_items]
    vk::BufferRange reduce_items;  ///< ops::AttentionReduceItem [attention_items]
    vk::BufferRange tile_grid;     ///< three uint32
    vk::BufferRange row_grid;
    vk::BufferRange reduce_grid;
  };
  std::vector<Attention> attention;  ///< by class
  vk::BufferRange sampling;          ///< ops::SamplingRow [logit_rows]

  /// Host view of the first elements of an array.
  template <typename T>
  static std::span<T> host(const vk::BufferRange& range) {
    return range.mapped<T>();
  }

 private:
  explicit StepArgs(vk::Arena arena) : arena_(std::move(arena)) {}

  vk::Arena arena_;
};

}  // namespace pumice
