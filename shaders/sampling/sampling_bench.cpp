#include "sampling/reference_sampler.hpp"
#include "shaders/op_case.hpp"
#include "shaders/sampling/sampling.hpp"

namespace pumice::ops {
namespace {

Result<PreparedOp> prepare(OpBed& bed, uint32_t n_rows, uint32_t n_vocab, bool greedy) {
  SamplerOptions options;
  if (!greedy) {
    options = {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f};
    options.seed = 1;
  } else {
    options.temperature = 0;
  }
  // A model's logits: most near one another, few far above.
  const auto logits = OpBed::normal_floats(size_t{n_rows} * n_vocab, 1, 2.5f);
  Sampling::Args args{.n_rows = n_rows, .n_vocab = n_vocab};
  std::vector<SamplingRow> rows;
  Expectation sampled{.name = "sampled"};
  for (uint32_t row = 0; row < n_rows; ++row) {
    rows.push_back(sampling_row(sampler_constants(options), row, row));
    PUMICE_TRY(ReferenceSampler reference, ReferenceSampler::create(options, n_vocab));
    const std::span<const float> row_logits(&logits[size_t{row} * n_vocab], n_vocab);
    sampled.words.push_back(reference.sample({.logits = row_logits, .token_index = row}));
  }
  PUMICE_TRY(args.logits, bed.input(logits));
  PUMICE_TRY(args.rows, bed.input(rows));
  PUMICE_TRY(args.sampled, bed.output(uint64_t{n_rows} * 4));
  sampled.output = args.sampled;
  PUMICE_TRY(args.scratch, bed.output(uint64_t{n_rows} * n_vocab * 4));
  const auto variant = greedy ? Sampling::Variant::kGreedy : Sampling::Variant::kFull;
  PUMICE_TRY(const Sampling op,
             Sampling::plan(bed.pipelines(), variant, Sampling::tuned(bed.pipelines(), n_vocab)));
  return PreparedOp{.record = [=](vk::Recorder& recorder) { op.record(recorder, args); },
                    .expected = {std::move(sampled)}};
}

}  // namespace

std::vector<OpCase> sampling_bench_cases(const BenchScale& scale) {
  constexpr uint32_t kVocabulary = 128256;
  std::vector<OpCase> cases;
  for (const uint32_t rows : {1u, 8u}) {
    for (const bool greedy : {true, false}) {
      if (scale.small && rows > 1) continue;
      cases.push_back(
          {.op = "sampling",
           .name = fmt::format("vocab={} rows={} {}", kVocabulary, rows,
                               greedy ? "greedy" : "top_k=40 top_p=0.95 min_p=0.05"),
           .prepare = [=](OpBed& bed) { return prepare(bed, rows, kVocabulary, greedy); }});
    }
  }
  return cases;
}

}  // namespace pumice::ops
