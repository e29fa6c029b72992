#include "shaders/flash_attention/attention_bench_case.hpp"
#include "shaders/flash_attention/flash_attention.hpp"
#include "shaders/op_case.hpp"

namespace pumice::ops {
namespace {

Result<PreparedOp> prepare(OpBed& bed, const AttentionBenchCase& test, const BenchScale& scale) {
  PUMICE_TRY(const FlashAttention op,
             FlashAttention::plan(bed.pipelines(), test.shape, Math::kAuto));
  PUMICE_TRY(const AttentionBenchInputs inputs, AttentionBenchInputs::make(bed, test, scale));
  PUMICE_TRY(const vk::BufferRange y, bed.output(inputs.y_bytes()));
  PUMICE_TRY(const FlashAttentionRun run,
             FlashAttentionRun::make(bed, test, inputs, op, y,
                                     [&](uint64_t bytes) { return bed.output(bytes); }));
  PreparedOp prepared;
  for (size_t copy = 0; copy < inputs.n_copies(); ++copy) {
    prepared.rotation.emplace_back(
        [=, call = inputs.call(copy)](vk::Recorder& recorder) { run.record(recorder, call); });
  }
  prepared.record = prepared.rotation[0];
  prepared.expected = {inputs.expect(test.rows > 1 ? op.tile_math() : op.row_math())};
  prepared.expected[0].output = y;
  return prepared;
}

}  // namespace

std::vector<OpCase> flash_attention_bench_cases(const BenchScale& scale) {
  // The last chunk of prompts of 512 and 4096 tokens, and one token after 512, 4096 and 32768; the
  // last with a window and a soft cap too.
  std::vector<AttentionBenchCase> tests;
  for (const uint32_t head_dim : {64u, 128u}) {
    const FlashAttention::Shape shape{
        .n_heads = 32, .n_kv_heads = 8, .head_dim = head_dim, .kv_type = KvType::kF16};
    if (scale.small) {
      tests.push_back({shape, 0, 64});
      tests.push_back({shape, 512, 1});
      continue;
    }
    tests.push_back({shape, 0, 512});
    tests.push_back({shape, 3584, 512});
    for (const uint32_t before : {512u, 4096u, 32768u}) tests.push_back({shape, before, 1});
  }
  FlashAttention::Shape local = tests.back().shape;
  local.window = scale.small ? 100 : 4096;
  local.soft_cap = 50;
  tests.push_back({local, tests.back().before, 1});
  std::vector<OpCase> cases;
  for (const AttentionBenchCase& test : tests) {
    cases.push_back({.op = "flash_attention",
                     .name = fmt::format(
                         "heads={}/{} head_dim={} f16 {} rows={} depth={}{}", test.shape.n_heads,
                         test.shape.n_kv_heads, test.shape.head_dim,
                         test.rows > 1 ? "prefill" : "decode", test.rows, test.before,
                         test.shape.window > 0 ? fmt::format(" window={} cap={}", test.shape.window,
                                                             test.shape.soft_cap)
                                               : ""),
                     .prepare = [=](OpBed& bed) { return prepare(bed, test, scale); }});
  }
  return cases;
}

}  // namespace pumice::ops
