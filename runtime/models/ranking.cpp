#include "models/ranking.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/printable.hpp"
#include "models/program_builder.hpp"

namespace pumice {
namespace {

constexpr std::string_view kRelevant = "yes";
constexpr uint64_t kMostLabels = 1024;

/// Of the labels that the file names, which one says that a text answers the query.
Result<uint32_t> find_relevant(const Metadata& metadata, uint64_t n_labels) {
  PUMICE_TRY(const std::vector<std::string> labels,
             metadata.read_names("classifier.output_labels", kMostLabels));
  if (n_labels == 1) return 0u;
  const auto found = std::ranges::find(labels, kRelevant);
  if (labels.size() != n_labels || found == labels.end()) {
    return make_error(
        ErrorCode::kBadFile,
        "cls.output.weight: {} labels, of which {}.classifier.output_labels calls none "
        "\"{}\": a classifier, not a reranker",
        n_labels, metadata.architecture(), kRelevant);
  }
  return static_cast<uint32_t>(found - labels.begin());
}

}  // namespace

Result<Program> with_ranking_head(Program program, const Metadata& metadata) {
  if (!metadata.ranks()) return program;
  const bool writes_text = !program.pooling;
  if (writes_text) {
    PUMICE_TRY(program, without_output(std::move(program)));
  }
  const GgufTensor* const output = metadata.file().find_tensor("cls.output.weight");
  if (output == nullptr) {
    return make_error(ErrorCode::kBadFile,
                      "the file says that the model ranks texts, and has no tensor "
                      "cls.output.weight");
  }
  const uint64_t n_labels = output->dims[1];
  if (n_labels == 0 || n_labels > kMostLabels) {
    return make_error(ErrorCode::kBadFile, "cls.output.weight: {} labels; 1 to {} are supported",
                      n_labels, kMostLabels);
  }
  PUMICE_TRY(const uint32_t relevant, find_relevant(metadata, n_labels));

  const auto bias_of = [&](const std::string& stem) {
    return metadata.has_tensor(stem + ".bias") ? ProgramBuilder::Bias::kAdded
                                               : ProgramBuilder::Bias::kNone;
  };
  ValueId x = program.logits;
  const uint32_t width = program.values[x].width;
  ProgramBuilder p = ProgramBuilder::behind(std::move(program));
  if (metadata.has_tensor("cls.weight")) {
    x = p.soft_cap(p.linear(x, "cls", width, bias_of("cls")), 1);  // tanh
  }
  x = p.linear(x, "cls.output", static_cast<uint32_t>(n_labels), bias_of("cls.output"));
  return p.finish_ranking(x, writes_text ? Pooling::kLast : Pooling::kCls, relevant);
}

double relevance(std::span<const float> scores, uint32_t label) {
  const double wanted = scores[label];
  if (scores.size() == 1) return 1 / (1 + std::exp(-wanted));
  double sum = 0;
  for (const float score : scores) sum += std::exp(double{score} - wanted);
  return 1 / sum;
}

}  // namespace pumice
