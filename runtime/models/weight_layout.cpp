#include "models/weight_layout.hpp"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "format/resident_layout.hpp"
#include "models/alignment.hpp"
#include "models/read_shares.hpp"
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
    group.stacks.push_back({.first = static_cast<uint32_t>(first),
                            .end = static_cast<uint32_t>(end),
                            .type = together[0].type,
                            .n_cols = together[0].n_cols,
                            .bytes = WeightMatrix::resident_bytes(together)});
    group.bytes += aligned(group.stacks.back().bytes);
  }
  return group;
}

/// In parts, as WeightMatrix::upload makes them.
void allocate_stack(const WeightLayout::Stack& stack, uint64_t slab_bytes, vk::ArenaSizes& sizes) {
  const uint64_t part =
      std::max<uint64_t>(1, WeightMatrix::groups_of_part(*stack.type, stack.n_cols, slab_bytes)) *
      row_group_bytes(*stack.type, stack.n_cols);
  uint64_t left = stack.bytes;
  for (; left > 0; left -= std::min(left, part)) sizes.allocate(std::min(left, part));
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
  return layout;
}

uint64_t WeightLayout::vectors_bytes() const {
  uint64_t sum = 0;
  for (const uint64_t bytes : vectors) sum += aligned(bytes);
  return sum;
}

uint64_t WeightLayout::resident_bytes() const {
  uint64_t sum = vectors_bytes();
  for (const Piece& piece : pieces) sum += piece.bytes;
  return sum;
}

WeightMemory WeightLayout::memory(uint64_t slab_bytes) const {
  WeightMemory memory;
  for (const Piece& piece : pieces) {
    vk::ArenaSizes sizes(slab_bytes, piece.bytes);
    for (const Group& group : piece.groups) {
      for (const Stack& stack : group.stacks) allocate_stack(stack, slab_bytes, sizes);
    }
    memory.pieces.push_back(
        {sizes.allocated_bytes(), static_cast<double>(piece.bytes) * piece.read_share});
    memory.largest_bytes = std::max(memory.largest_bytes, sizes.largest_bytes());
  }
  vk::ArenaSizes all_vectors(slab_bytes, vectors_bytes());
  for (const uint64_t bytes : vectors) all_vectors.allocate(bytes);
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
