// Texts to vectors: which program computes the embeddings of a model, and how the rows of a text
// become one vector.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "models/model_source.hpp"
#include "models/program.hpp"

namespace pumice {

std::string_view pooling_name(Pooling pooling);  ///< "none", "mean", "cls", "last"
/// Errors: kInvalidArgument, with all names.
Result<Pooling> parse_pooling(std::string_view name);

/// The program that embeds: of a model made for that its own, of one that writes text what its
/// output matrix reads. `pooling`: instead of the file's. Errors: those of build_program;
/// kInvalidArgument for a model that writes text whose file says nothing of embeddings, unless
/// `pooling` does, and for a pooling of one that ranks.
Result<Program> build_embedding_program(const ModelSource& source,
                                        std::optional<Pooling> pooling = {});

/// The vector of a text from those of its tokens, [tokens][width], of at least one: summed in fp64.
/// With kNone all of them.
template <typename T>
std::vector<T> pool(Pooling pooling, std::span<const T> rows, size_t width) {
  const size_t n_rows = rows.size() / width;
  if (pooling == Pooling::kNone) return std::vector<T>(rows.begin(), rows.end());
  if (pooling != Pooling::kMean) {
    const std::span<const T> row =
        rows.subspan(pooling == Pooling::kCls ? 0 : (n_rows - 1) * width, width);
    return std::vector<T>(row.begin(), row.end());
  }
  std::vector<double> sums(width);
  for (size_t i = 0; i < rows.size(); ++i) sums[i % width] += double{rows[i]};
  std::vector<T> mean(width);
  for (size_t i = 0; i < width; ++i) {
    mean[i] = static_cast<T>(sums[i] / static_cast<double>(n_rows));
  }
  return mean;
}

/// To length 1, each `width` numbers by themselves; zeros stay zeros.
void normalise(std::span<float> vectors, size_t width);

}  // namespace pumice
