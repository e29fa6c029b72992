#include <algorithm>
#include <future>
#include <thread>

#include "base/path.hpp"
#include "models/synthetic.hpp"

namespace pumice {
namespace {

constexpr uint64_t kPieceBytes = 2 << 20;
constexpr uint32_t kMaxThreads = 4;  // as many outrun any disk

/// Consecutive blocks of one tensor.
struct Piece {
  const SyntheticTensor* tensor;
  uint64_t first_block;
  uint64_t n_bytes;
};

std::vector<Piece> pieces_of(const SyntheticModel& model) {
  std::vector<Piece> pieces;
  for (const SyntheticTensor& tensor : model.tensors()) {
    const uint64_t block_bytes = tensor.type->block_bytes;
    const uint64_t n_blocks = tensor.n_bytes() / block_bytes;
    const uint64_t step = kPieceBytes / block_bytes;
    for (uint64_t first = 0; first < n_blocks; first += step) {
      pieces.push_back({&tensor, first, std::min(step, n_blocks - first) * block_bytes});
    }
  }
  return pieces;
}

Status check_disk(const SyntheticModel& model, const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  const std::filesystem::space_info space = std::filesystem::space(folder, error);
  if (error) return {};  // creating the file will say what is wrong
  if (space.available < model.data_bytes()) {
    return make_error(ErrorCode::kDoesNotFit,
                      "{}: the model takes {:.2f} GB and the disk has {:.2f}", to_utf8(path),
                      static_cast<double>(model.data_bytes()) / 1e9,
                      static_cast<double>(space.available) / 1e9);
  }
  return {};
}

/// As many pieces as there are threads, each filled by its own.
class Batch {
 public:
  explicit Batch(const SyntheticModel& model) : model_(model) {}

  void start(std::span<const Piece> pieces) {
    buffers_.resize(std::max(buffers_.size(), pieces.size()));
    for (size_t i = 0; i < pieces.size(); ++i) {
      running_.push_back(std::async(std::launch::async, [this, i, piece = pieces[i]] {
        buffers_[i].resize(piece.n_bytes);
        model_.fill(*piece.tensor, piece.first_block, buffers_[i]);
      }));
    }
  }

  /// Waits for them and writes them in order; the batch can be started again.
  Result<uint64_t> write_to(GgufWriter& writer) {
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < running_.size(); ++i) {
      running_[i].get();
      PUMICE_TRY_STATUS(writer.write(buffers_[i]));
      n_bytes += buffers_[i].size();
    }
    running_.clear();
    return n_bytes;
  }

 private:
  const SyntheticModel& model_;
  std::vector<std::vector<std::byte>> buffers_;
  std::vector<std::future<void>> running_;  // last: destroyed first, which waits for the threads
};

}  // namespace

Status write_synthetic_model(const SyntheticModel& model, const std::filesystem::path& path,
                             const SyntheticProgress& progress, OutputFile::Existing existing) {
  PUMICE_TRY_STATUS(check_disk(model, path));
  PUMICE_TRY(GgufWriter writer, GgufWriter::create(path, model.header(), existing));
  const std::vector<Piece> pieces = pieces_of(model);
  const size_t n_threads = std::clamp(std::thread::hardware_concurrency(), 1u, kMaxThreads);
  uint64_t done_bytes = 0;
  Batch batches[2] = {Batch(model), Batch(model)};  // one is filled while the other is written
  for (size_t first = 0, i = 0; first < pieces.size() + n_threads; first += n_threads, ++i) {
    if (first < pieces.size()) {
      const size_t count = std::min(n_threads, pieces.size() - first);
      batches[i % 2].start(std::span(pieces).subspan(first, count));
    }
    PUMICE_TRY(const uint64_t n_bytes, batches[(i + 1) % 2].write_to(writer));
    done_bytes += n_bytes;
    if (progress) PUMICE_TRY_STATUS(progress(done_bytes, model.data_bytes()));
  }
  return writer.finish();
}

}  // namespace pumice
