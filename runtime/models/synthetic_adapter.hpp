// LoRA adapters with random numbers, for benchmarks and tests with models that nobody made adapters
// for.
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/output_file.hpp"
#include "base/result.hpp"
#include "models/model_source.hpp"

namespace pumice {

struct SyntheticAdapter {
  uint32_t rank = 16;  ///< at most AdapterSource::kMostRank
  uint64_t seed = 1;
};

/// Write an adapter in F16 that adds about half as much as they give to the products of a model
/// with all matrices that adapters may add to. The same base, rank and seed give the same file.
/// Errors leave nothing behind: those of build_program, kInvalidArgument for the rank, OutputFile's.
Status write_synthetic_adapter(const ModelSource& base, const SyntheticAdapter& adapter,
                               const std::filesystem::path& path,
                               OutputFile::Existing existing = OutputFile::Existing::kReplace);

}  // namespace pumice
