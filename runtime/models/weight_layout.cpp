#include "models/weight_layout.hpp"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "format/resident_layout.hpp"
#include "models/alignment.hpp"
#include "models/read_shares.hpp"
#include "shaders/common/weight_ranges.hpp"
#include "vk/arena_sizes.hpp"

namespace pumice {
namespace {

/// Consecutive sources that share a dispatch, as (first, end).
std::vector<std::pair<size_t, size_t>> stacks_of(std::span<const WeightSource> sources) {
  std::vector<std::pair<size_t, size_t>> stacks;
  for (size_t i = 0; i < sources.size(); ++i) {
    const bool joins = !stacks.empty() &&
                       can_stack(sources.subspan(stacks.back().first, i + 1 - stacks.back().first));
    if (joins) {
      stacks.back().second = i + 1;
    } else {
      stacks.emplace_back(i, i + 1);
    }
  }
  return stacks;
}

/// Groups but those of matrices that earlier ones have all: what is read twice is loaded once.
std::vector<std::span<const MatrixRows>> different_groups(const Lowered& lowered) {
  std::set<std::pair<TensorId, uint32_t>> seen;
  std::vector<std::span<const MatrixRows>> groups;
  for (const std::vector<MatrixRows>& group : lowered.matrices) {
    bool is_new = false;
    for (const MatrixRows& rows : group) {
      is_new = seen.emplace(rows.tensor, rows.first_row).second || is_new;
    }
    if (is_new) groups.emplace_back(group);
  }
  return groups;
}

// Matrices lie in at most so many pieces, which can move each by itself, unless those would be
// larger or smaller than pieces should be.
constexpr uint64_t kParts = 16;
constexpr uint64_t kMostParts = 64;
constexpr uint64_t kSmallestPieceBytes = uint64_t{64} << 10;
constexpr uint64_t kLargestPieceBytes = uint64_t{64} << 20;

WeightLayout::Group group_of(const ModelSource& source, const Program& program,
                             std::span<const MatrixRows> rows) {
  WeightLayout::Group group{.rows = rows};
  const std::vector<WeightSource> sources = sources_of(source, program, rows);
  for (const auto& [first, end] : stacks_of(sources)) {
    const auto together = std::span(sources).subspan(first, end - first);
    uint32_t n_rows = 0;
    for (const WeightSource& one : together) n_rows += one.n_rows;
    group.stacks.push_back({.first = static_cast<uint32_t>(first),
                            .end = static_cast<uint32_t>(end),
                            .type = together[0].type,
                            .n_rows = n_rows,
                            .n_cols = together[0].n_cols,
                            .bytes = WeightMatrix::resident_bytes(together)});
    group.bytes += aligned(group.stacks.back().bytes);
  }
  return group;
}

}  // namespace

const GgufTensor& tensor_of(const ModelSource& source, const Program& program, TensorId id) {
  const GgufTensor* const tensor = source.file().find_tensor(program.tensors[id].name);
  PUMICE_CHECK(tensor != nullptr, "unchecked tensor " + program.tensors[id].name);
  return *tensor;
}

std::vector<WeightSource> sources_of(const ModelSource& source, const Program& program,
                                     std::span<const MatrixRows> group) {
  std::vector<WeightSource> sources;
  for (const MatrixRows& rows : group) {
    sources.push_back(
        source.matrix(tensor_of(source, program, rows.tensor), rows.first_row, rows.n_rows));
  }
  return sources;
}

WeightLayout weight_layout(const ModelSource& source, const Program& program,
                           const Lowered& lowered) {
  std::vector<std::span<const MatrixRows>> groups = different_groups(lowered);
  const std::vector<double> shares = read_shares(program, lowered);
  const auto share_of = [&](std::span<const MatrixRows> group) {
    double most = 0;
    for (const MatrixRows& rows : group) most = std::max(most, shares[rows.tensor]);
    return std::min(most, 1.0);
  };
  std::ranges::stable_sort(groups, std::greater(), share_of);
  std::vector<WeightLayout::Group> all;
  uint64_t all_bytes = 0;
  for (const std::span<const MatrixRows> rows : groups) {
    all.push_back(group_of(source, program, rows));
    all_bytes += all.back().bytes;
  }
  const uint64_t most = std::max({kSmallestPieceBytes, all_bytes / kMostParts,
                                  std::min((all_bytes + kParts - 1) / kParts, kLargestPieceBytes)});
  WeightLayout layout;
  std::vector<WeightLayout::Piece>& pieces = layout.pieces;
  for (WeightLayout::Group& group : all) {
    const double share = share_of(group.rows);
    if (pieces.empty() || pieces.back().bytes + group.bytes > most ||
        pieces.back().read_share != share) {
      pieces.push_back({.read_share = share});
    }
    pieces.back().bytes += group.bytes;
    pieces.back().groups.push_back(std::move(group));
  }
  for (const std::vector<TensorId>& tensors : lowered.vectors) {
    uint64_t n = 0;
    for (const TensorId id : tensors) n += program.tensors[id].n_elements();
    layout.vectors.push_back(n * sizeof(float));
  }
  for (const AdaptedMatrix& matrix : program.adapted) {
    const auto& dims = program.tensors[matrix.tensor].dims;
    for (const uint64_t n : {dims[0], dims[1]}) {
      layout.vectors.push_back(program.adapters.size() * matrix.rank * n * sizeof(float));
    }
  }
  return layout;
}

vk::ArenaLayout WeightLayout::lay_out_vectors(std::vector<vk::BufferRange>& ranges) const {
  vk::ArenaLayout arena(vk::MemoryDomain::kDevice, "weights");
  ranges.resize(vectors.size());
  for (size_t i = 0; i < vectors.size(); ++i) arena.add(vectors[i], ranges[i]);
  return arena;
}

uint64_t WeightLayout::resident_bytes() const {
  std::vector<vk::BufferRange> ranges;
  uint64_t sum = lay_out_vectors(ranges).bytes();
  for (const Piece& piece : pieces) sum += piece.bytes;
  return sum;
}

WeightMemory WeightLayout::memory(uint64_t slab_bytes) const {
  WeightMemory memory;
  for (const Piece& piece : pieces) {
    vk::ArenaSizes sizes(slab_bytes, piece.bytes);
    for (const Group& group : piece.groups) {
      for (const Stack& stack : group.stacks) {
        for (const uint64_t bytes :
             weight_ranges(*stack.type, stack.n_rows, stack.n_cols, slab_bytes)) {
          sizes.allocate(bytes);
        }
      }
    }
    memory.pieces.push_back(
        {sizes.allocated_bytes(), static_cast<double>(piece.bytes) * piece.read_share});
    memory.largest_bytes = std::max(memory.largest_bytes, sizes.largest_bytes());
  }
  std::vector<vk::BufferRange> ranges;
  const vk::ArenaSizes all_vectors = lay_out_vectors(ranges).sizes(slab_bytes);
  memory.vectors_bytes = all_vectors.allocated_bytes();
  memory.largest_bytes = std::max(memory.largest_bytes, all_vectors.largest_bytes());
  return memory;
}

uint64_t WeightMemory::allocated_bytes() const {
  uint64_t bytes = vectors_bytes;
  for (const Piece& piece : pieces) bytes += piece.allocated_bytes;
  return bytes;
}

}  // namespace pumice
