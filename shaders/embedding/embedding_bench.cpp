#include <bit>

#include "shaders/common/linear_cases.hpp"
#include "shaders/embedding/embedding.hpp"

namespace pumice::ops {
namespace {

/// Random tokens of a table whose rows repeat.
Result<PreparedOp> prepare(OpBed& bed, const WeightType& type, uint32_t n_tokens, uint32_t n,
                           uint32_t rows) {
  const RandomWeights weights(type, kDistinctRows, n, 1);
  PUMICE_TRY(const auto tables, repeated_matrices(bed, weights, n_tokens));
  std::mt19937 engine(2);
  std::vector<uint32_t> tokens(rows);
  for (uint32_t& token : tokens) token = static_cast<uint32_t>(engine() % n_tokens);

  Embedding::Args args{.rows = rows};
  PUMICE_TRY(args.tokens, bed.input(tokens));
  PUMICE_TRY(args.y, bed.output(uint64_t{rows} * n * 4));
  args.sampled = args.tokens;  // no token refers to it
  PUMICE_TRY(const Embedding op, Embedding::plan(bed.pipelines(), type));

  Expectation y{.name = "y", .output = args.y};
  for (const uint64_t row : sample_elements(rows, 4, 3)) {
    for (uint32_t i = 0; i < n; ++i) {
      y.elements.push_back(row * n + i);
      const size_t at = size_t{tokens[row] % kDistinctRows} * n + i;
      y.words.push_back(std::bit_cast<uint32_t>(weights.values[at]));
    }
  }
  return PreparedOp{.record =
                        [=](vk::Recorder& recorder) {
                          Embedding::Args call = args;
                          call.table = tables.data();
                          op.record(recorder, call);
                        },
                    .expected = {std::move(y)}};
}

}  // namespace

std::vector<OpCase> embedding_bench_cases(const BenchScale& scale) {
  const uint32_t n_tokens = scale.small ? 32000 : 128256;
  const uint32_t rows = scale.small ? 64 : 512;
  std::vector<OpCase> cases;
  for (const char* name : {"F16", "Q8_0", "Q4_K", "Q6_K"}) {
    cases.push_back({.op = "embedding",
                     .name = fmt::format("{} tokens={} n=2048 rows={}", name, n_tokens, rows),
                     .prepare = [=](OpBed& bed) {
                       return prepare(bed, weight_type(name), n_tokens, 2048, rows);
                     }});
  }
  return cases;
}

}  // namespace pumice::ops
