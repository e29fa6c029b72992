#include "models/embedding.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <variant>

#include "models/families.hpp"
#include "models/metadata.hpp"

namespace pumice {
namespace {

constexpr std::array<std::string_view, 4> kPoolingNames = {"none", "mean", "cls", "last"};

}  // namespace

std::string_view pooling_name(Pooling pooling) {
  return kPoolingNames.at(static_cast<size_t>(pooling));
}

Result<Pooling> parse_pooling(std::string_view name) {
  const auto found = std::ranges::find(kPoolingNames, name);
  if (found == kPoolingNames.end()) {
    return make_error(ErrorCode::kInvalidArgument, "pooling must be one of none, mean, cls, last");
  }
  return static_cast<Pooling>(found - kPoolingNames.begin());
}

Result<Program> build_embedding_program(const ModelSource& source, std::optional<Pooling> pooling) {
  PUMICE_TRY(Program program, build_program(source));
  if (!program.pooling) {
    if (!pooling) {
      PUMICE_TRY(pooling, Metadata(source, program.architecture).read_pooling());
    }
    if (!pooling) {
      return make_error(ErrorCode::kInvalidArgument,
                        "not an embedding model: architecture {} writes text, and the file has no "
                        "{}.pooling_type; to embed with it anyway, say how its tokens are pooled "
                        "(--pooling last or mean)",
                        program.architecture, program.architecture);
    }
    PUMICE_TRY(program, without_output(std::move(program)));
    program.pooling = pooling;
  }
  if (pooling && program.relevant_label) {
    return make_error(ErrorCode::kInvalidArgument,
                      "the model ranks texts: which of its rows counts is its own to say, so leave "
                      "the pooling out");
  }
  if (pooling) program.pooling = pooling;
  return program;
}

void normalise(std::span<float> vectors, size_t width) {
  for (; !vectors.empty(); vectors = vectors.subspan(width)) {
    double squares = 0;
    for (const float value : vectors.first(width)) squares += double{value} * value;
    if (squares == 0) continue;
    for (float& value : vectors.first(width)) {
      value = static_cast<float>(value / std::sqrt(squares));
    }
  }
}

}  // namespace pumice
