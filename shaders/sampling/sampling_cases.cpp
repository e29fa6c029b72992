#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "sampling/reference_sampler.hpp"
#include "shaders/op_case.hpp"
#include "shaders/sampling/sampling.hpp"

namespace pumice::ops {
namespace {

struct Shape {
  uint32_t n_vocab;
  uint32_t n_rows;
  uint32_t seed;
  bool plain_greedy;
  uint32_t n_slices = 0;  ///< 0: as the device is tuned
};

/// Random numbers that are the same on every host.
class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(engine_() % n); }
  uint32_t word() { return static_cast<uint32_t>(engine_()); }
  bool one_in(uint32_t n) { return below(n) == 0; }
  template <typename T>
  T of(std::initializer_list<T> values) {
    return values.begin()[below(static_cast<uint32_t>(values.size()))];
  }

 private:
  std::mt19937 engine_;
};

/// Logits of one row: of very different spread, with few or many ties, with values no model should
/// give but some do.
std::vector<float> random_logits(Random& random, uint32_t n_vocab) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float scale = random.of({0.0f, 1e-6f, 0.3f, 2.0f, 8.0f, 50.0f, 1e37f});
  std::vector<float> logits = OpBed::normal_floats(n_vocab, random.word(), scale);
  const uint32_t kind = random.below(6);
  for (float& logit : logits) {
    if (kind == 0) logit = std::round(logit);
    if (kind == 1) logit = std::abs(logit) > scale ? logit : -1.0f;  // one long tie
    if (kind == 2 && random.one_in(4)) {
      logit =
          random.of({std::nanf(""), kInf, -kInf, 0.0f, -0.0f, 1e-40f, -1e-40f, 3.4e38f, -3.4e38f});
    }
    if (kind == 3 && !random.one_in(n_vocab)) logit = -kInf;
  }
  if (kind == 4) std::ranges::sort(logits);  // the last ids are the best
  return logits;
}

SamplerOptions random_options(Random& random, uint32_t n_vocab) {
  SamplerOptions options;
  options.temperature =
      random.of({0.0f, 1e-38f, 0.01f, 0.7f, 0.7f, 1.0f, 1.0f, 1.5f, 100.0f, 3e38f});
  options.top_k = random.of({0u, 0u, 1u, 2u, 5u, 40u, 40u, 511u, 512u, 513u, n_vocab - 1, n_vocab});
  options.top_p = random.of({1.0f, 1.0f, 0.0f, 1e-9f, 0.3f, 0.9f, 0.95f, 0.999999f});
  options.min_p = random.of({0.0f, 0.0f, 1e-7f, 0.05f, 0.05f, 0.5f, 1.0f});
  options.seed = uint64_t{random.word()} << 32 | random.word();
  if (random.one_in(2)) {
    options.repeat_penalty = random.of({1.0f, 1.1f, 2.0f, 0.5f, 1000.0f});
    options.frequency_penalty = random.of({0.0f, 0.2f, -1.0f, 1e38f});
    options.presence_penalty = random.of({0.0f, 0.5f, -2.0f, 1e-41f});
  }
  if (random.one_in(3)) {
    const uint32_t stride = 1 + random.below(n_vocab);
    for (uint32_t id = random.below(stride); id < n_vocab && options.logit_bias.size() < 300;
         id += stride) {
      const float bias =
          random.of({1.0f, -5.0f, 30.0f, 3e38f, -std::numeric_limits<float>::infinity()});
      options.logit_bias.emplace_back(id, bias);
    }
  }
  return options;
}

std::vector<uint32_t> random_counts(Random& random, uint32_t n_vocab) {
  std::vector<uint32_t> counts(n_vocab);
  for (uint32_t& count : counts) {
    if (random.one_in(3))
      count = random.of({1u, 2u, 7u, kInPrompt, kInPrompt | 3u, ~kInPrompt, ~0u});
  }
  return counts;
}

std::vector<uint32_t> random_mask(Random& random, uint32_t n_vocab) {
  std::vector<uint32_t> mask((n_vocab + 31) / 32);
  const uint32_t one_in = random.of({2u, 2u, 10u, 1000000u});
  for (uint32_t id = 0; id < n_vocab; ++id) {
    if (random.one_in(one_in)) mask[id / 32] |= 1u << (id % 32);
  }
  return mask;
}

/// What the CPU would be given for one row; counts and mask may be empty.
struct Row {
  std::vector<float> logits;
  SamplerOptions options;
  uint64_t token_index = 0;
  std::vector<uint32_t> counts;
  std::vector<uint32_t> mask;
  /// Follows the row before, whose options and counts it has: a draft is right there, or wrong.
  enum class Follows { kNone, kRight, kWrong } follows = Follows::kNone;
};

std::vector<Row> random_rows(const Shape& shape) {
  Random random(shape.seed);
  std::vector<Row> rows(shape.n_rows);
  for (Row& row : rows) {
    row.logits = random_logits(random, shape.n_vocab);
    row.token_index = random.of({uint64_t{0}, uint64_t{1}, uint64_t{1} << 40});
    if (shape.plain_greedy) continue;
    row.options = random_options(random, shape.n_vocab);
    if (random.one_in(2)) row.counts = random_counts(random, shape.n_vocab);
    if (random.one_in(3)) row.mask = random_mask(random, shape.n_vocab);
  }
  return rows;
}

/// Drafts of one to four tokens, right up to some token, of requests with penalties: what a row
/// chooses, those behind it choose otherwise than without.
std::vector<Row> draft_rows(uint32_t n_vocab) {
  Random random(21);
  std::vector<Row> rows;
  for (uint32_t draft = 0; draft < 30; ++draft) {
    Row row{.options = random_options(random, n_vocab), .token_index = draft};
    row.options.frequency_penalty = random.of({0.4f, 3.0f});
    row.options.repeat_penalty = random.of({1.0f, 1.3f});
    row.counts = random_counts(random, n_vocab);
    row.logits = OpBed::normal_floats(n_vocab, random.word(), 2.0f);
    rows.push_back(row);
    for (uint32_t n = 1 + random.below(4); n > 0; --n) {
      ++row.token_index;
      row.follows = random.one_in(4) ? Row::Follows::kWrong : Row::Follows::kRight;
      rows.push_back(row);  // the same logits: without the counts it would choose the same
    }
  }
  return rows;
}

/// Boundaries that random rows miss, over four tokens.
std::vector<Row> edge_rows() {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  // With this seed the target of the draw is exactly the mass of token 0, so token 1 is drawn.
  std::vector<Row> rows{
      {.logits = {0, 0, -kInf, -kInf}, .options = {.temperature = 1, .seed = 89966413}}};
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    // A third in fp32 is a little more than a third, so two of three equal tokens are kept.
    rows.push_back({.logits = {0, 0, 0, -kInf},
                    .options = {.temperature = 1, .top_p = 1.0f / 3, .seed = seed}});
    // top-k splits the tie of tokens 0 and 2, then top-p ends at a larger logit.
    rows.push_back({.logits = {0, 5, 0, 5},
                    .options = {.temperature = 1, .top_k = 3, .top_p = 0.9f, .seed = seed}});
    // The logits differ by a subnormal, which some drivers flush.
    rows.push_back({.logits = {2.3e-38f, 1.3e-38f, 1.3e-38f, -1},
                    .options = {.temperature = 3e-39f, .seed = seed}});
  }
  return rows;
}

/// Everything the rows' pointers refer to, one after the other in `tables` and `counts`.
struct Inputs {
  std::vector<float> logits;
  std::vector<SamplingRow> rows;  // pointers are offsets + 1, until the addresses are known
  std::vector<uint32_t> counts;
  std::vector<uint32_t> tables;
  std::vector<uint32_t> expected_counts;
  std::vector<uint32_t> expected_sampled;
  size_t first_of_draft = 0;  // the last row that follows none
  bool draft_is_right = true;
};

/// What it chooses depends on the rows before. They have one place for their counts.
void add_follower(Inputs& inputs, const Row& row) {
  const auto n_vocab = static_cast<uint32_t>(row.logits.size());
  const auto index = static_cast<uint32_t>(inputs.rows.size());
  SamplingRow& first = inputs.rows[inputs.first_of_draft];
  SamplingRow device = first;
  ++first.n_followers;
  device.n_followers = 0;
  device.skip = 1;
  device.place = index * 2 + 1;
  device.index_low = static_cast<uint32_t>(row.token_index);
  const uint32_t before = inputs.expected_sampled[inputs.rows.back().place];
  const bool right = row.follows == Row::Follows::kRight;
  inputs.rows.back().drafted = right ? before : (before + 1) % n_vocab;
  inputs.draft_is_right = inputs.draft_is_right && right;
  inputs.expected_sampled.resize(index * 2 + 2, ~0u);
  const auto counts =
      std::span(inputs.expected_counts).subspan(inputs.first_of_draft * n_vocab, n_vocab);
  if (inputs.draft_is_right) {
    const uint32_t id = ReferenceSampler::create(row.options, n_vocab)
                            ->sample({.logits = row.logits,
                                      .counts = counts,
                                      .mask = row.mask,
                                      .token_index = row.token_index});
    inputs.expected_sampled[device.place] = id;
    count_output_token(counts, id);
  }
  inputs.counts.resize(inputs.counts.size() + n_vocab);  // not read
  inputs.expected_counts.resize(inputs.expected_counts.size() + n_vocab);
  inputs.logits.insert(inputs.logits.end(), row.logits.begin(), row.logits.end());
  inputs.rows.push_back(device);
}

void add_row(Inputs& inputs, Row row, bool skips) {
  if (row.follows != Row::Follows::kNone) return add_follower(inputs, row);
  inputs.first_of_draft = inputs.rows.size();
  inputs.draft_is_right = true;
  const auto n_vocab = static_cast<uint32_t>(row.logits.size());
  const auto index = static_cast<uint32_t>(inputs.rows.size());
  SamplingRow device = sampling_row(sampler_constants(row.options), row.token_index, index * 2 + 1);
  if (!row.counts.empty()) device.counts = inputs.counts.size() * 4 + 1;
  if (!row.options.logit_bias.empty()) {
    device.bias = inputs.tables.size() * 4 + 1;
    device.n_bias = static_cast<uint32_t>(row.options.logit_bias.size());
    for (const auto& [id, bias] : row.options.logit_bias) {
      inputs.tables.insert(inputs.tables.end(), {id, std::bit_cast<uint32_t>(bias)});
    }
  }
  if (!row.mask.empty()) {
    device.mask = inputs.tables.size() * 4 + 1;
    inputs.tables.insert(inputs.tables.end(), row.mask.begin(), row.mask.end());
    if (inputs.tables.size() % 2 != 0) inputs.tables.push_back(0);  // bias lists are 8-byte aligned
  }
  device.skip = skips ? 1 : 0;

  const bool counted = !row.counts.empty();
  row.counts.resize(n_vocab);
  inputs.counts.insert(inputs.counts.end(), row.counts.begin(), row.counts.end());
  inputs.expected_sampled.resize(index * 2 + 2, ~0u);  // what is not written stays poison
  if (device.skip == 0) {
    SampleInput input{.logits = row.logits, .mask = row.mask, .token_index = row.token_index};
    if (counted) input.counts = row.counts;
    const uint32_t id = ReferenceSampler::create(row.options, n_vocab)->sample(input);
    inputs.expected_sampled[device.place] = id;
    if (counted) count_output_token(row.counts, id);
  }
  inputs.expected_counts.insert(inputs.expected_counts.end(), row.counts.begin(), row.counts.end());
  inputs.logits.insert(inputs.logits.end(), row.logits.begin(), row.logits.end());
  inputs.rows.push_back(device);
}

/// `skips`: every seventh row only pads the batch.
Result<PreparedOp> prepare(OpBed& bed, std::vector<Row> rows, bool plain_greedy, uint32_t n_slices,
                           bool skips = true) {
  Inputs inputs;
  Sampling::Args args{.n_rows = static_cast<uint32_t>(rows.size()),
                      .n_vocab = static_cast<uint32_t>(rows[0].logits.size())};
  for (size_t i = 0; i < rows.size(); ++i) {
    add_row(inputs, std::move(rows[i]), skips && i % 7 == 6);
  }
  inputs.tables.push_back(0);  // never empty
  const uint64_t words = inputs.logits.size();
  PUMICE_TRY(args.logits, bed.input(inputs.logits));
  PUMICE_TRY(args.tables, bed.input(inputs.tables));
  PUMICE_TRY(const vk::BufferRange pristine, bed.input(inputs.counts));
  PUMICE_TRY(args.counts, bed.output(words * 4));
  for (SamplingRow& row : inputs.rows) {
    if (row.counts != 0) row.counts += args.counts.address() - 1;
    if (row.mask != 0) row.mask += args.tables.address() - 1;
    if (row.bias != 0) row.bias += args.tables.address() - 1;
  }
  PUMICE_TRY(args.rows, bed.input(inputs.rows));
  PUMICE_TRY(args.sampled, bed.output(inputs.expected_sampled.size() * 4));
  Sampling::Tuning tuning = Sampling::tuned(bed.pipelines(), args.n_vocab);
  if (n_slices != 0) tuning.n_slices = n_slices;
  if (!plain_greedy || tuning.n_slices > 1) {
    PUMICE_TRY(args.scratch, bed.output(words * 4));
  }
  const auto variant = plain_greedy ? Sampling::Variant::kGreedy : Sampling::Variant::kFull;
  PUMICE_TRY(const Sampling op, Sampling::plan(bed.pipelines(), variant, tuning));
  return prepared_op(
      op, args,
      {{.name = "sampled", .output = args.sampled, .words = std::move(inputs.expected_sampled)},
       {.name = "counts", .output = args.counts, .words = std::move(inputs.expected_counts)}},
      args.counts, pristine);
}

std::string slices_text(uint32_t n_slices) {
  return n_slices == 0 ? "" : fmt::format(" slices={}", n_slices);
}

}  // namespace

std::vector<OpCase> sampling_cases() {
  std::vector<OpCase> cases;
  for (const Shape& shape : {Shape{1, 16, 1, false},        Shape{2, 60, 2, false},
                             Shape{127, 60, 3, false},      Shape{128, 60, 4, false},
                             Shape{129, 60, 5, false},      Shape{512, 200, 6, false},
                             Shape{701, 100, 7, false},     Shape{32003, 40, 8, false},
                             Shape{70001, 9, 9, false},     Shape{300000, 3, 10, false},
                             Shape{1, 3, 11, true},         Shape{512, 40, 12, true},
                             Shape{32003, 9, 13, true},     Shape{129, 60, 5, false, 2},
                             Shape{512, 200, 6, false, 4},  Shape{701, 100, 7, false, 8},
                             Shape{701, 40, 14, true, 64},  Shape{32003, 40, 8, false, 16},
                             Shape{32003, 9, 13, true, 32}, Shape{300000, 3, 10, false, 64}}) {
    cases.push_back(
        {.op = "sampling",
         .name = fmt::format("vocab={} rows={}{}{}", shape.n_vocab, shape.n_rows,
                             shape.plain_greedy ? " greedy" : "", slices_text(shape.n_slices)),
         .prepare = [shape](OpBed& bed) {
           return prepare(bed, random_rows(shape), shape.plain_greedy, shape.n_slices);
         }});
  }
  cases.push_back({.op = "sampling", .name = "edges", .prepare = [](OpBed& bed) {
                     return prepare(bed, edge_rows(), false, 0);
                   }});
  for (const auto& [n_vocab, n_slices] : {std::pair(5u, 0u), {701u, 0u}, {701u, 4u}}) {
    cases.push_back({.op = "sampling",
                     .name = fmt::format("vocab={} drafts{}", n_vocab, slices_text(n_slices)),
                     .prepare = [n_vocab = n_vocab, n_slices = n_slices](OpBed& bed) {
                       return prepare(bed, draft_rows(n_vocab), false, n_slices, false);
                     }});
  }
  return cases;
}

std::vector<OpCase> sampling_bench_cases(const BenchScale& scale) {
  constexpr uint32_t kVocabulary = 128256;
  std::vector<OpCase> cases;
  for (const uint32_t n_rows : {1u, 8u}) {
    for (const bool greedy : {true, false}) {
      if (scale.small && n_rows > 1) continue;
      SamplerOptions options{.temperature = 0};
      if (!greedy) {
        options = {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .seed = 1};
      }
      cases.push_back({.op = "sampling",
                       .name = fmt::format("vocab={} rows={} {}", kVocabulary, n_rows,
                                           greedy ? "greedy" : "top_k=40 top_p=0.95 min_p=0.05"),
                       .prepare = [=](OpBed& bed) {
                         std::vector<Row> rows(n_rows);
                         for (uint32_t row = 0; row < n_rows; ++row) {
                           // A model's logits: most near one another, few far above.
                           rows[row].logits = OpBed::normal_floats(kVocabulary, row, 2.5f);
                           rows[row].options = options;
                           rows[row].token_index = row;
                         }
                         return prepare(bed, std::move(rows), greedy, 0, false);
                       }});
    }
  }
  return cases;
}

}  // namespace pumice::ops
