#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "sampling/fixed_point.hpp"
#include "shaders/log_probs/log_probs.hpp"
#include "shaders/op_case.hpp"

namespace pumice::ops {
namespace {

struct Shape {
  uint32_t n_vocab;
  uint32_t n_rows;
  uint32_t n_best;
  float scale;
  bool odd_values = false;  ///< NaN, infinities, subnormals
};

constexpr double kNothing = -1e30;  // stands for -inf, of which there is no difference

std::vector<float> logits_of(const Shape& shape) {
  std::vector<float> logits =
      OpBed::normal_floats(size_t{shape.n_rows} * shape.n_vocab, shape.n_vocab, shape.scale);
  for (size_t i = 0; i < logits.size(); ++i) {
    if (i % 5 == 1) logits[i] = std::round(logits[i]);  // ties
    if (!shape.odd_values) continue;
    constexpr float kOdd[] = {std::numeric_limits<float>::quiet_NaN(), -HUGE_VALF, 1e-41f, 0,
                              -0.0f};
    if (i % 3 == 0) logits[i] = kOdd[i / 3 % std::size(kOdd)];
    if (i < shape.n_vocab) logits[i] = -HUGE_VALF;  // a row in which nothing is possible
  }
  return logits;
}

/// In fp64: the token's log probability, then those of the best. `ids` gets whose they are.
std::vector<double> reference(std::span<const float> row, uint32_t token, uint32_t n_results,
                              std::vector<uint32_t>& ids) {
  std::vector<float> values(row.size());
  std::ranges::transform(row, values.begin(), canonical);
  ids.resize(values.size());
  std::iota(ids.begin(), ids.end(), 0u);
  std::ranges::stable_sort(ids, std::greater(), [&](uint32_t id) { return values[id]; });
  const double most = values[ids[0]];
  double sum = 0;
  for (const float value : values) sum += std::exp(double{value} - most);
  ids.insert(ids.begin(), token);
  ids.resize(n_results);
  std::vector<double> result;
  for (const uint32_t id : ids) {
    result.push_back(std::isinf(values[id]) ? kNothing : double{values[id]} - most - std::log(sum));
  }
  return result;
}

Result<PreparedOp> prepare(OpBed& bed, const Shape& shape) {
  const std::vector<float> logits = logits_of(shape);
  const uint32_t stride = 2 + shape.n_best;
  std::vector<LogProbsRow> rows;
  std::vector<uint32_t> sampled;
  // Ids are compared as the values they are, log probabilities within their bound.
  Expectation expected{.name = "results"};
  constexpr double kUnwritten = std::numeric_limits<double>::quiet_NaN();
  for (uint32_t i = 0; i < shape.n_rows; ++i) {
    const uint32_t token = (i * 7919 + 3) % shape.n_vocab;
    const uint32_t n_results = i % 4 == 3 ? 0 : std::min(1 + shape.n_best, 1 + shape.n_vocab);
    const bool from_sampled = i % 2 == 1;
    rows.push_back({.token = from_sampled
                                 ? LogProbs::kFromSampled | static_cast<uint32_t>(sampled.size())
                                 : token,
                    .n_results = n_results});
    if (from_sampled) sampled.push_back(token);
    std::vector<uint32_t> ids;
    std::vector<double> values;
    if (n_results > 0) {
      values = reference(std::span(logits).subspan(size_t{i} * shape.n_vocab, shape.n_vocab), token,
                         n_results, ids);
    }
    for (uint32_t r = 0; r < stride; ++r) {
      const bool written = r < n_results;
      expected.reference.push_back(written ? ids[r] : kUnwritten);
      expected.bound.push_back(0);
      expected.reference.push_back(written ? values[r] : kUnwritten);
      expected.bound.push_back(
          written && values[r] != kNothing ? 1e-5 + 0x1p-22 * std::abs(values[r]) : 0);
    }
  }
  LogProbs::Args args{.n_rows = shape.n_rows, .n_vocab = shape.n_vocab, .stride = stride};
  PUMICE_TRY(args.logits, bed.input(logits));
  PUMICE_TRY(args.rows, bed.input(rows));
  sampled.push_back(0);  // never empty
  PUMICE_TRY(args.sampled, bed.input(sampled));
  PUMICE_TRY(args.results, bed.output(uint64_t{shape.n_rows} * stride * sizeof(LogProbs::Entry)));
  PUMICE_TRY(const LogProbs op, LogProbs::plan(bed.pipelines()));
  expected.output = args.results;
  expected.decode = [](std::span<const std::byte> bytes) {
    std::vector<double> values;
    for (size_t at = 0; at + sizeof(LogProbs::Entry) <= bytes.size();
         at += sizeof(LogProbs::Entry)) {
      LogProbs::Entry entry;
      std::memcpy(&entry, &bytes[at], sizeof(entry));
      const bool written = !std::isnan(entry.log_prob);
      values.push_back(written ? entry.token : kUnwritten);
      values.push_back(std::isinf(entry.log_prob) ? kNothing : entry.log_prob);
    }
    return values;
  };
  return prepared_op(op, args, {std::move(expected)});
}

}  // namespace

std::vector<OpCase> log_probs_cases() {
  std::vector<OpCase> cases;
  for (const Shape& shape :
       {Shape{1, 3, 1, 1}, Shape{2, 5, 5, 1}, Shape{127, 5, 0, 2}, Shape{128, 8, 20, 2},
        Shape{129, 5, 3, 8}, Shape{701, 9, 20, 0}, Shape{701, 9, 20, 30, true},
        Shape{32003, 3, 5, 2.5f}, Shape{151936, 2, 20, 0.01f}, Shape{151936, 1, 2, 50}}) {
    cases.push_back(
        {.op = "log_probs",
         .name = fmt::format("vocab={} rows={} best={} scale={}{}", shape.n_vocab, shape.n_rows,
                             shape.n_best, shape.scale, shape.odd_values ? " odd" : ""),
         .prepare = [shape](OpBed& bed) { return prepare(bed, shape); }});
  }
  return cases;
}

}  // namespace pumice::ops
