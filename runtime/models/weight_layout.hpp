// How a model's weights will lie in device memory: which matrices are one there, in which pieces
// they lie, and what those take. Made without a device; loading (weights.hpp) follows it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/lowering.hpp"
#include "models/model_source.hpp"
#include "vk/arena_layout.hpp"

namespace pumice {

/// What weights take on a device with slabs of one size.
struct WeightMemory {
  struct Piece {
    uint64_t allocated_bytes = 0;
    double read_bytes = 0;  ///< by a token that is decoded, alone in its step
  };
  std::vector<Piece> pieces;   ///< in their order
  uint64_t vectors_bytes = 0;  ///< allocated; always on the device
  uint64_t largest_bytes = 0;  ///< of one allocation

  uint64_t allocated_bytes() const;
};

/// What is loaded, and the pieces in which it lies, those of which a token reads most for their
/// size first. Refers to the matrices of the program that it was made of.
struct WeightLayout {
  /// Neighbours of a group that are one matrix in memory, since their types agree.
  struct Stack {
    uint32_t first = 0;  ///< of the group's matrices
    uint32_t end = 0;
    const WeightType* type = nullptr;
    uint32_t n_rows = 0;
    uint32_t n_cols = 0;
    uint64_t bytes = 0;
  };
  struct Group {
    std::span<const MatrixRows> rows;
    std::vector<Stack> stacks;
    uint64_t bytes = 0;
  };
  /// Groups of one share of reads.
  struct Piece {
    std::vector<Group> groups;
    uint64_t bytes = 0;
    double read_share = 0;
  };
  std::vector<Piece> pieces;
  /// Bytes of each of Lowered::vectors, then of what adapters have for each of Program::adapted, A
  /// and B; never in pieces.
  std::vector<uint64_t> vectors;

  /// The arena of the vectors, a range each.
  vk::ArenaLayout lay_out_vectors(std::vector<vk::BufferRange>& ranges) const;
  /// Of device memory that is filled.
  uint64_t resident_bytes() const;
  WeightMemory memory(uint64_t slab_bytes) const;
};

/// The source's tensors have been checked against the program. The layout is valid as long as
/// `lowered`.
WeightLayout weight_layout(const ModelSource& source, const Program& program,
                           const Lowered& lowered);

/// Rows of matrices of a checked source, as they are uploaded.
std::vector<WeightSource> sources_of(const ModelSource& source, const Program& program,
                                     std::span<const MatrixRows> group);
/// check_tensors has checked that it exists and has its shape.
const GgufTensor& tensor_of(const ModelSource& source, const Program& program, TensorId id);

}  // namespace pumice
