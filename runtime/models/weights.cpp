#include "models/weights.hpp"

#include <algorithm>
#include <functional>
#include <set>

#include "format/resident_layout.hpp"

namespace pumice {
namespace {

constexpr uint64_t kAlignment = 256;

uint64_t aligned(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

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

/// Calls `matrix` with the sources of each matrix that is loaded and `vector` with the bytes
/// of each vector, in the order in which they are.
void for_each_weight(const ModelSource& source, const Program& program, const Lowered& lowered,
                     const std::function<void(std::span<const WeightSource>)>& matrix,
                     const std::function<void(uint64_t n_bytes)>& vector) {
  for (const std::span<const MatrixRows> group : different_groups(lowered)) {
    const std::vector<WeightSource> sources = sources_of(source, program, group);
    for (const auto& [first, end] : stacks_of(sources)) {
      matrix(std::span(sources).subspan(first, end - first));
    }
  }
  for (const std::vector<TensorId>& tensors : lowered.vectors) {
    uint64_t n = 0;
    for (const TensorId id : tensors) n += program.tensors[id].n_elements();
    vector(n * sizeof(float));
  }
}

}  // namespace

class ModelWeights::Loader {
 public:
  Loader(const std::shared_ptr<vk::Device>& device, const ModelSource& source,
         const Program& program, ModelWeights& weights, const Progress& progress)
      : source_(source),
        program_(program),
        weights_(weights),
        uploader_(device),
        part_bytes_(device->plan().slab_bytes),
        progress_(progress) {
    for (const GgufTensor& tensor : source.file().tensors()) total_bytes_ += tensor.n_bytes;
  }

  Status group(std::span<const MatrixRows> group) {
    const std::vector<WeightSource> sources = sources_of(source_, program_, group);
    Stack stack;
    for (const MatrixRows& rows : group) stack.keys.push_back(key(rows));
    for (const auto& [first, end] : stacks_of(sources)) {
      const auto together = std::span(sources).subspan(first, end - first);
      PUMICE_TRY(WeightMatrix matrix,
                 WeightMatrix::upload(uploader_, *weights_.arena_, together, part_bytes_));
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

  Status vector(const std::vector<TensorId>& tensors) {
    std::vector<float> all;
    for (const TensorId id : tensors) {
      const GgufTensor& tensor = tensor_of(source_, program_, id);
      PUMICE_TRY(const std::vector<float> values, source_.values(tensor));
      all.insert(all.end(), values.begin(), values.end());
      advance(tensor.n_bytes);
    }
    PUMICE_TRY(const vk::BufferRange range, weights_.arena_->allocate(all.size() * sizeof(float)));
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

 private:
  void advance(uint64_t bytes) {
    done_bytes_ += bytes;
    if (progress_) progress_(done_bytes_, total_bytes_);
  }

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
                                        const Lowered& lowered, const Progress& progress) {
  const uint64_t bytes = resident_weight_bytes(source, program, lowered);
  ModelWeights weights(
      std::make_shared<vk::Arena>(device, vk::MemoryDomain::kDevice, "weights", bytes));
  weights.resident_bytes_ = bytes;
  Loader loader(device, source, program, weights, progress);
  for (const std::span<const MatrixRows> group : different_groups(lowered)) {
    PUMICE_TRY_STATUS(loader.group(group));
  }
  for (const std::vector<TensorId>& tensors : lowered.vectors) {
    PUMICE_TRY_STATUS(loader.vector(tensors));
  }
  return weights;
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
  uint64_t bytes = 0;
  for_each_weight(
      source, program, lowered,
      [&](std::span<const WeightSource> stack) {
        bytes += aligned(WeightMatrix::resident_bytes(stack));
      },
      [&](uint64_t n_bytes) { bytes += aligned(n_bytes); });
  return bytes;
}

vk::ArenaSizes weight_memory(const ModelSource& source, const Program& program,
                             const Lowered& lowered, uint64_t slab_bytes) {
  vk::ArenaSizes sizes(slab_bytes, resident_weight_bytes(source, program, lowered));
  for_each_weight(
      source, program, lowered,
      [&](std::span<const WeightSource> stack) {
        // In parts, as WeightMatrix::upload makes them.
        const WeightType& type = *stack[0].type;
        const uint32_t n_cols = stack[0].n_cols;
        const uint64_t part =
            std::max<uint64_t>(1, WeightMatrix::groups_of_part(type, n_cols, slab_bytes)) *
            row_group_bytes(type, n_cols);
        uint64_t left = WeightMatrix::resident_bytes(stack);
        for (; left > 0; left -= std::min(left, part)) sizes.allocate(std::min(left, part));
      },
      [&](uint64_t n_bytes) { sizes.allocate(n_bytes); });
  return sizes;
}

}  // namespace pumice
