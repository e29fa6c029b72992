// LoRA adapters: files of low-rank matrices that are added to those of a base model, for the rows
// of requests that name them: x Wᵀ becomes x Wᵀ + s x Aᵀ Bᵀ with s = alpha / rank. The files are
// those of llama.cpp's convert_lora_to_gguf: general.type "adapter", adapter.type "lora",
// adapter.lora.alpha, and for a matrix of the base `NAME.lora_a` {n_cols, rank} and `NAME.lora_b`
// {rank, n_rows}.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "format/gguf.hpp"
#include "models/program.hpp"

namespace pumice {

/// An adapter's file, opened. Copies share it; any number of threads may read.
struct AdapterSource {
  static constexpr uint32_t kMostRank = 1024;
  static constexpr size_t kMost = 256;  ///< of one model

  std::string name;  ///< that requests say
  std::shared_ptr<const GgufFile> file;
  float alpha = 0;                           ///< 0: what the matrices give is added as it is
  float scale = 1;                           ///< the user's, of all it adds
  std::array<uint64_t, 2> fingerprint = {};  ///< of the file and its scale

  /// Errors: those of GgufFile::open, and of_file's.
  static Result<AdapterSource> open(std::string name, const std::filesystem::path& path,
                                    float scale = 1);
  /// Errors: kBadFile where the file says that it is none, or one that works in another way (an
  /// activated one), or its alpha is not finite; kInvalidArgument for a name that is empty or a
  /// scale that is not finite.
  static Result<AdapterSource> of_file(std::string name, std::shared_ptr<const GgufFile> file,
                                       float scale = 1);

  /// What is added is so much of B (A x).
  float factor(uint32_t rank) const;
};

/// The matrices of which all that reads them multiplies rows by them (op::Linear), rising: those
/// that adapters may add to.
std::set<TensorId> adaptable_matrices(const Program& program);

/// The program with rows that may each be an adapter's (Program::adapters, in this order): products
/// with a matrix that one of them has something for add that. Errors (kBadFile) name the first
/// tensor that cannot be added: without its other half, of no matrix of the base, of one that is
/// not just a factor of rows (an embedding, experts, heads), of another shape, or of a rank beyond
/// AdapterSource::kMostRank; kInvalidArgument: two adapters of one name, more of them than
/// AdapterSource::kMost, or a model that embeds.
Result<Program> with_adapters(Program program, std::span<const AdapterSource> adapters);

/// A matrix of AdaptedMatrix::rank ranks for each adapter, zeros where it has nothing, as
/// ops::Lora::Args has them.
struct AdapterMatrices {
  std::vector<float> a;
  std::vector<float> b;  ///< times AdapterSource::factor
};
/// Of a checked program. Errors: GgufFile::read's.
Result<AdapterMatrices> adapter_matrices(const Program& program, const AdaptedMatrix& matrix,
                                         std::span<const AdapterSource> adapters);

}  // namespace pumice
