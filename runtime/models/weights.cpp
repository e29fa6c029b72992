#include "models/weights.hpp"

#include <algorithm>

namespace pumice {

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

  Status piece(const WeightLayout::Piece& piece, bool on_device) {
    const auto beside = device_->plan().beside_device();
    PUMICE_CHECK(on_device || beside, "weights beside a device that has no such memory");
    auto arena =
        std::make_shared<vk::Arena>(device_, on_device ? vk::MemoryDomain::kDevice : *beside,
                                    on_device ? "weights" : kWeightsBeside, piece.bytes);
    weights_.pieces_.push_back(arena);
    for (const WeightLayout::Group& group : piece.groups) {
      PUMICE_TRY_STATUS(this->group(group, *arena));
    }
    return {};
  }

  Status vectors(const std::vector<std::vector<TensorId>>& all, const WeightLayout& layout) {
    std::vector<vk::BufferRange> ranges;
    PUMICE_TRY(vk::Arena arena, layout.lay_out_vectors(ranges).allocate(device_));
    weights_.vector_arena_ = std::make_shared<vk::Arena>(std::move(arena));
    for (size_t i = 0; i < all.size(); ++i) PUMICE_TRY_STATUS(vector(all[i], ranges[i]));
    for (size_t i = 0; i < program_.adapted.size(); ++i) {
      const Adapters at{ranges[all.size() + 2 * i], ranges[all.size() + 2 * i + 1]};
      PUMICE_TRY(const AdapterMatrices matrices,
                 adapter_matrices(program_, program_.adapted[i], source_.adapters()));
      PUMICE_TRY_STATUS(uploader_.write(at.a, std::span<const float>(matrices.a)));
      PUMICE_TRY_STATUS(uploader_.write(at.b, std::span<const float>(matrices.b)));
      weights_.adapters_.push_back(at);
    }
    return {};
  }

 private:
  Status group(const WeightLayout::Group& group, vk::Arena& arena) {
    const std::vector<WeightSource> sources = sources_of(source_, program_, group.rows);
    Stack stack;
    for (const MatrixRows& rows : group.rows) stack.keys.push_back(key(rows));
    for (const WeightLayout::Stack& one : group.stacks) {
      const auto together = std::span(sources).subspan(one.first, one.end - one.first);
      PUMICE_TRY(WeightMatrix matrix,
                 WeightMatrix::upload(uploader_, arena, together, part_bytes_));
      uint32_t row = 0;
      for (size_t i = one.first; i < one.end; ++i) {
        weights_.matrices_.emplace(key(group.rows[i]), matrix.rows(row, group.rows[i].n_rows));
        row += group.rows[i].n_rows;
        advance(sources[i].file_bytes());
      }
      stack.matrices.members.push_back({std::move(matrix), stack.matrices.n_outputs});
      stack.matrices.n_outputs += row;
    }
    const Key first = stack.keys[0];
    weights_.stacks_.emplace(first, std::move(stack));
    return {};
  }

  Status vector(const std::vector<TensorId>& tensors, const vk::BufferRange& range) {
    std::vector<float> all;
    for (const TensorId id : tensors) {
      const GgufTensor& tensor = tensor_of(source_, program_, id);
      PUMICE_TRY(const std::vector<float> values, source_.values(tensor));
      all.insert(all.end(), values.begin(), values.end());
      advance(tensor.n_bytes);
    }
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
                                        const ModelSource& source, const ModelPlan& plan,
                                        const Progress& progress, uint32_t n_on_device) {
  const WeightLayout& layout = plan.weights();
  ModelWeights weights;
  weights.resident_bytes_ = layout.resident_bytes();
  Loader loader(device, source, plan.program(), weights, progress);
  for (size_t i = 0; i < layout.pieces.size(); ++i) {
    PUMICE_TRY_STATUS(loader.piece(layout.pieces[i], i < n_on_device));
  }
  PUMICE_TRY_STATUS(loader.vectors(plan.loaded().vectors, layout));
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

}  // namespace pumice
