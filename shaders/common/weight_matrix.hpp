// A weight matrix in device memory, in the resident layout of its type
// (format/resident_layout.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "format/weight_type.hpp"
#include "vk/memory.hpp"
#include "vk/transfer.hpp"

namespace pumice {

/// A matrix in file blocks, n_rows output features of n_cols inputs each: in memory, or read or
/// made as it is uploaded.
struct WeightSource {
  const WeightType* type = nullptr;
  std::span<const std::byte> bytes;  ///< n_rows * type->file_bytes(n_cols), at any alignment
  uint32_t n_rows = 0;
  uint32_t n_cols = 0;
  /// Instead of `bytes`: writes the blocks from `first_block` on. Called on several threads. An
  /// error ends the upload.
  std::function<Status(uint64_t first_block, std::span<std::byte> out)> fill = {};

  uint64_t file_bytes() const { return n_rows * type->file_bytes(n_cols); }
};

/// Whether the sources may be stacked by rows into one matrix: one type, one n_cols and, if there
/// are several, row counts that are multiples of 32. (Without sources: no.)
bool can_stack(std::span<const WeightSource> sources);

/// Consecutive rows of a matrix, within one slab.
struct WeightMatrixPart {
  vk::BufferRange range;   ///< resident_bytes(type, n_rows, n_cols) bytes
  uint32_t first_row = 0;  ///< a multiple of kRowGroup
  uint32_t n_rows = 0;
};

/// Copyable view; the arena it was uploaded to owns the memory.
struct WeightMatrix {
  const WeightType* type = nullptr;
  uint32_t n_rows = 0;                  ///< output features
  uint32_t n_cols = 0;                  ///< input features
  std::vector<WeightMatrixPart> parts;  ///< by rising row, together all rows
  vk::BufferRange grid = {};            ///< type->grid; empty where the type has none

  /// A view of some rows; `first` is a multiple of kRowGroup, and so is `n` unless they are the
  /// last.
  WeightMatrix rows(uint32_t first, uint32_t n) const;

  /// The same rows of the matrix as a part, smaller than `part`, in which they lie.
  WeightMatrixPart rows_of(const WeightMatrixPart& part, uint32_t first, uint32_t n) const;

  /// Bytes that uploading such sources takes, the grid's too, without the arena's own alignment.
  static uint64_t resident_bytes(std::span<const WeightSource> sources);

  /// Row groups that a part of at most `part_bytes` holds: no more than what kernels that give a
  /// workgroup to each group may dispatch on every device. 0 if one group is too large.
  static uint64_t groups_of_part(const WeightType& type, uint32_t n_cols, uint64_t part_bytes);

  /// Stack `sources` by rows and repack them into memory of `arena`, in parts of at most
  /// `part_bytes` (vk::DevicePlan::slab_bytes), on several threads. Host memory besides the mapped
  /// destination is bounded by a few MiB or one group of 32 rows, whichever is more. Blocking.
  /// Errors: kInvalidArgument when can_stack is false, the type has no codec or the sizes disagree;
  /// kDoesNotFit when 32 rows exceed a part or memory runs out; a source's own.
  static Result<WeightMatrix> upload(vk::Uploader& uploader, vk::Arena& arena,
                                     std::span<const WeightSource> sources, uint64_t part_bytes);
};

}  // namespace pumice
