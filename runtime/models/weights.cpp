#include "models/weights.hpp"

#include <algorithm>
#include <functional>
#include <set>

#include "format/resident_layout.hpp"
#include "models/alignment.hpp"
#include "models/read_shares.hpp"
#include "vk/arena_sizes.hpp"

namespace pumice {
namespace {

/// check_tensors has checked that it exists and has its shape.
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

uint64_t vector_bytes(const Program& program, const std::vector<TensorId>& tensors) {
  uint64_t n = 0;
  for (const TensorId id : tensors) n += program.tensors[id].n_elements();
  return n * sizeof(float);
}

// Matrices lie in at most so many pieces, which can move each by itself, unless those would be
// larger or smaller than pieces should be.
constexpr uint64_t kParts = 16;
constexpr uint64_t kMostParts = 64;
constexpr uint64_t kSmallestPieceBytes = uint64_t{64} << 10;
constexpr uint64_t kLargestPieceBytes = uint64_t{64} << 20;

/// What is loaded, and the pieces in which it lies: groups of matrices of one share of reads.
struct Pieces {
  struct Piece {
    std::vector<std::span<const MatrixRows>> groups;
    uint64_t bytes = 0;
    double read_share = 0;
  };
  std::vector<Piece> pieces;
  uint64_t vectors_bytes = 0;  // never in pieces

  uint64_t bytes() const {
    uint64_t sum = vectors_bytes;
    for (const Piece& piece : pieces) sum += piece.bytes;
    return sum;
  }
};

Pieces pieces_of(const ModelSource& source, const Program& program, const Lowered& lowered) {
  std::vector<std::span<const MatrixRows>> groups = different_groups(lowered);
  const std::vector<double> shares = read_shares(program, lowered);
  const auto share_of = [&](std::span<const MatrixRows> group) {
    double most = 0;
    for (const MatrixRows& rows : group) most = std::max(most, shares[rows.tensor]);
    return std::min(most, 1.0);
  };
  std::ranges::stable_sort(groups, std::greater(), share_of);
  std::vector<uint64_t> bytes(groups.size());
  uint64_t all_bytes = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    const std::vector<WeightSource> sources = sources_of(source, program, groups[i]);
    for (const auto& [first, end] : stacks_of(sources)) {
      bytes[i] +=
          aligned(WeightMatrix::resident_bytes(std::span(sources).subspan(first, end - first)));
    }
    all_bytes += bytes[i];
  }
  const uint64_t most = std::max({kSmallestPieceBytes, all_bytes / kMostParts,
                                  std::min((all_bytes + kParts - 1) / kParts, kLargestPieceBytes)});
  Pieces all;
  for (size_t i = 0; i < groups.size(); ++i) {
    const double share = share_of(groups[i]);
    if (all.pieces.empty() || all.pieces.back().bytes + bytes[i] > most ||
        all.pieces.back().read_share != share) {
      all.pieces.push_back({.read_share = share});
    }
    all.pieces.back().groups.push_back(groups[i]);
    all.pieces.back().bytes += bytes[i];
  }
  for (const std::vector<TensorId>& tensors : lowered.vectors) {
    all.vectors_bytes += aligned(vector_bytes(program, tensors));
  }
  return all;
}

/// In parts, as WeightMatrix::upload makes them.
void allocate_stack(std::span<const WeightSource> stack, uint64_t slab_bytes,
                    vk::ArenaSizes& sizes) {
  const WeightType& type = *stack[0].type;
  const uint32_t n_cols = stack[0].n_cols;
  const uint64_t part =
      std::max<uint64_t>(1, WeightMatrix::groups_of_part(type, n_cols, slab_bytes)) *
      row_group_bytes(type, n_cols);
  uint64_t left = WeightMatrix::resident_bytes(stack);
  for (; left > 0; left -= std::min(left, part)) sizes.allocate(std::min(left, part));
}

}  // namespace

class ModelWeights::Loader {
 public:
  Loader(const std::shared_ptr<vk::Device>& device, const ModelSource& source,
         const Program& program, ModelWeights& weights, const Progress& progress)
      : device_(device),
        source_(source),
        program_(program),
        weights_(weights),
        uploader_(device),
        part_bytes_(device->plan().slab_bytes),
        progress_(progress) {
    for (const GgufTensor& tensor : source.file().tensors()) total_bytes_ += tensor.n_bytes;
  }

  Status piece(const Pieces::Piece& piece, bool on_device) {
    const auto beside = device_->plan().beside_device();
    PUMICE_CHECK(on_device || beside, "weights beside a device that has no such memory");
    auto arena =
        std::make_shared<vk::Arena>(device_, on_device ? vk::MemoryDomain::kDevice : *beside,
                                    on_device ? "weights" : kWeightsBeside, piece.bytes);
    weights_.pieces_.push_back(arena);
    for (const std::span<const MatrixRows> group : piece.groups) {
      PUMICE_TRY_STATUS(this->group(group, *arena));
    }
    return {};
  }

  Status vectors(const std::vector<std::vector<TensorId>>& all, uint64_t bytes) {
    auto arena = std::make_shared<vk::Arena>(device_, vk::MemoryDomain::kDevice, "weights", bytes);
    weights_.vector_arena_ = arena;
    for (const std::vector<TensorId>& tensors : all) PUMICE_TRY_STATUS(vector(tensors, *arena));
    return {};
  }

 private:
  Status group(std::span<const MatrixRows> group, vk::Arena& arena) {
    const std::vector<WeightSource> sources = sources_of(source_, program_, group);
    Stack stack;
    for (const MatrixRows& rows : group) stack.keys.push_back(key(rows));
    for (const auto& [first, end] : stacks_of(sources)) {
      const auto together = std::span(sources).subspan(first, end - first);
      PUMICE_TRY(WeightMatrix matrix,
                 WeightMatrix::upload(uploader_, arena, together, part_bytes_));
      uint32_t row = 0;
      for (size_t i = first; i < end; ++i) {
        weights_.matrices_.emplace(key(group[i]), matrix.rows(row, group[i].n_rows));
        row += group[i].n_rows;
        advance(sources[i].file_bytes());
      }
      stack.matrices.members.push_back({std::move(matrix), stack.matrices.n_outputs});
      stack.matrices.n_outputs += row;
    }
    const Key first = stack.keys[0];
    weights_.stacks_.emplace(first, std::move(stack));
    return {};
  }

  Status vector(const std::vector<TensorId>& tensors, vk::Arena& arena) {
    std::vector<float> all;
    for (const TensorId id : tensors) {
      const GgufTensor& tensor = tensor_of(source_, program_, id);
      PUMICE_TRY(const std::vector<float> values, source_.values(tensor));
      all.insert(all.end(), values.begin(), values.end());
      advance(tensor.n_bytes);
    }
    PUMICE_TRY(const vk::BufferRange range, arena.allocate(all.size() * sizeof(float)));
    PUMICE_TRY_STATUS(uploader_.write(range, std::span<const float>(all)));
    weights_.vectors_.emplace(tensors, range);
    uint64_t done = 0;
    for (const TensorId id : tensors) {
      const uint64_t bytes = program_.tensors[id].n_elements() * sizeof(float);
      weights_.vectors_.emplace(std::vector{id}, range.subrange(done, bytes));
      done += bytes;
    }
    return {};
  }

  void advance(uint64_t bytes) {
    done_bytes_ += bytes;
    if (progress_) progress_(done_bytes_, total_bytes_);
  }

  const std::shared_ptr<vk::Device>& device_;
  const ModelSource& source_;
  const Program& program_;
  ModelWeights& weights_;
  vk::Uploader uploader_;
  uint64_t part_bytes_;
  const Progress& progress_;
  uint64_t done_bytes_ = 0;
  uint64_t total_bytes_ = 0;
};

Result<ModelWeights> ModelWeights::load(const std::shared_ptr<vk::Device>& device,
                                        const ModelSource& source, const Program& program,
                                        const Lowered& lowered, const Progress& progress,
                                        uint32_t n_on_device) {
  const Pieces pieces = pieces_of(source, program, lowered);
  ModelWeights weights;
  weights.resident_bytes_ = pieces.bytes();
  Loader loader(device, source, program, weights, progress);
  for (size_t i = 0; i < pieces.pieces.size(); ++i) {
    PUMICE_TRY_STATUS(loader.piece(pieces.pieces[i], i < n_on_device));
  }
  PUMICE_TRY_STATUS(loader.vectors(lowered.vectors, pieces.vectors_bytes));
  return weights;
}

uint64_t ModelWeights::allocated_bytes() const {
  uint64_t bytes = vector_arena_->allocated_bytes();
  for (const auto& piece : pieces_) bytes += piece->allocated_bytes();
  return bytes;
}

ModelWeights ModelWeights::with_piece(size_t index, std::shared_ptr<const vk::Arena> arena) const {
  std::map<const vk::Slab*, const vk::Slab*> now;
  const std::vector<vk::BufferRange> before = pieces_[index]->slabs();
  const std::vector<vk::BufferRange> after = arena->slabs();
  for (size_t i = 0; i < before.size(); ++i) now[before[i].slab] = after[i].slab;
  const auto move = [&](vk::BufferRange& range) {
    if (const auto found = now.find(range.slab); found != now.end()) range.slab = found->second;
  };
  const auto move_all = [&](WeightMatrix& matrix) {
    for (WeightMatrixPart& part : matrix.parts) move(part.range);
    move(matrix.grid);
  };
  ModelWeights moved = *this;
  moved.pieces_[index] = std::move(arena);
  for (auto& [key, stack] : moved.stacks_) {
    for (StackedMatrices::Member& member : stack.matrices.members) move_all(member.matrix);
  }
  for (auto& [key, matrix] : moved.matrices_) move_all(matrix);
  return moved;
}

const WeightMatrix& ModelWeights::matrix(const MatrixRows& rows) const {
  const auto found = matrices_.find(key(rows));
  PUMICE_CHECK(found != matrices_.end() && found->second.n_rows == rows.n_rows,
               "a matrix that was not loaded");
  return found->second;
}

StackedMatrices ModelWeights::stack(std::span<const MatrixRows> group) const {
  const auto found = stacks_.find(key(group[0]));
  if (found != stacks_.end() &&
      std::ranges::equal(found->second.keys, group, {}, {}, [](auto& rows) { return key(rows); })) {
    return found->second.matrices;
  }
  StackedMatrices stack;
  for (const MatrixRows& rows : group) {
    stack.members.push_back({matrix(rows), stack.n_outputs});
    stack.n_outputs += rows.n_rows;
  }
  return stack;
}

vk::BufferRange ModelWeights::vector(std::span<const TensorId> tensors) const {
  const auto found = vectors_.find({tensors.begin(), tensors.end()});
  PUMICE_CHECK(found != vectors_.end(), "a vector that was not loaded");
  return found->second;
}

uint64_t resident_weight_bytes(const ModelSource& source, const Program& program,
                               const Lowered& lowered) {
  return pieces_of(source, program, lowered).bytes();
}

WeightMemory weight_memory(const ModelSource& source, const Program& program,
                           const Lowered& lowered, uint64_t slab_bytes) {
  WeightMemory memory;
  const Pieces all = pieces_of(source, program, lowered);
  for (const Pieces::Piece& piece : all.pieces) {
    vk::ArenaSizes sizes(slab_bytes, piece.bytes);
    for (const std::span<const MatrixRows> group : piece.groups) {
      const std::vector<WeightSource> sources = sources_of(source, program, group);
      for (const auto& [first, end] : stacks_of(sources)) {
        allocate_stack(std::span(sources).subspan(first, end - first), slab_bytes, sizes);
      }
    }
    memory.pieces.push_back(
        {sizes.allocated_bytes(), static_cast<double>(piece.bytes) * piece.read_share});
    memory.largest_bytes = std::max(memory.largest_bytes, sizes.largest_bytes());
  }
  vk::ArenaSizes vectors(slab_bytes, all.vectors_bytes);
  for (const std::vector<TensorId>& tensors : lowered.vectors) {
    vectors.allocate(vector_bytes(program, tensors));
  }
  memory.vectors_bytes = vectors.allocated_bytes();
  memory.largest_bytes = std::max(memory.largest_bytes, vectors.largest_bytes());
  return memory;
}

uint64_t WeightMemory::allocated_bytes() const {
  uint64_t bytes = vectors_bytes;
  for (const Piece& piece : pieces) bytes += piece.allocated_bytes;
  return bytes;
}

}  // namespace pumice
