// What calls have in common. A call is one entry of a lowered program: plain data, made without a
// device, that says which kernel computes what, from where to where in a step's memory. Each group
// of kernels has its calls in a file pair of this folder, with what binds them to a device
// (bound_call.hpp); calls.hpp lists them all.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.hpp"
#include "shaders/quantize_x/quantize_x.h"

namespace pumice {

using BufferId = uint32_t;  ///< index into Lowered::buffers
using GroupId = uint32_t;   ///< index into Lowered::matrices
using VectorId = uint32_t;  ///< index into Lowered::vectors

/// Columns of a buffer from `first` on.
struct View {
  BufferId buffer = 0;
  uint32_t first = 0;
  bool operator==(const View&) const = default;
};

/// Elements of a vector from `first` on.
struct VectorPart {
  VectorId vector = 0;
  uint32_t first = 0;
};

/// What a call reads and writes, as its `operands` lists it: all that lowering, memory plans and
/// the order of weights need to know of calls of any kind.
class Operands {
 public:
  /// Rows of a group's matrices that one decoded token reads.
  struct Rows {
    GroupId group = 0;
    std::optional<uint32_t> member;  ///< of the group; none: all of it
    std::optional<uint64_t> n_rows;  ///< none: all rows
  };

  void buffer(const View& view) { buffers.push_back(view.buffer); }
  void buffer(const std::optional<View>& view) {
    if (view) buffer(*view);
  }
  /// Only in a step of few rows (Buffer::few).
  void buffer_of_few(const View& view) { buffers_of_few.push_back(view.buffer); }
  void rows(GroupId group, std::optional<uint64_t> n_rows = {},
            std::optional<uint32_t> member = {}) {
    matrices.push_back({group, member, n_rows});
  }
  /// A matrix product of so many rows of numbers for each of the step's, which may want scratch memory.
  void product(uint32_t n_columns, uint32_t n_rows = 1) {
    columns.push_back(n_rows * ((n_columns + HALVED_COLS - 1) / HALVED_COLS * HALVED_COLS));
  }

  std::vector<BufferId> buffers;  ///< read or written
  std::vector<BufferId> buffers_of_few;
  std::vector<Rows> matrices;
  std::vector<uint32_t> columns;  ///< of each product, with what halves of them are padded by
};

class BoundCall;
class Binder;
/// Each call's `bind` declares the pipelines it is recorded with and takes its weights. Errors:
/// those of the ops' `plan`.
using BindResult = Result<std::unique_ptr<BoundCall>>;

}  // namespace pumice
