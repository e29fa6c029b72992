#include "shaders/recurrence/recurrence_case.hpp"

namespace pumice::ops {
namespace {

/// Sequences of one case, and how their rows come.
struct Run {
  std::vector<StateCase::Sequence> sequences;
  uint32_t piece_rows = 0;
  float a_scale = 0;
};

struct ShapeRuns {
  Recurrence::Shape shape;
  std::vector<Run> runs;
};

/// In pieces: sequences that end before, at and behind their edges, which are each sequence's own;
/// columns of several workgroups, the last of them not whole. Where keys decay by themselves some
/// last and others are gone after a row.
std::vector<ShapeRuns> shape_runs() {
  using Decay = Recurrence::Decay;
  return {
      {{.n_heads = 1, .n_key_heads = 1, .key_dim = 1, .value_dim = 1},
       {{{{1, true}}}, {{{7, true}}, 4}}},
      {{.n_heads = 4, .n_key_heads = 2, .key_dim = 32, .value_dim = 48, .has_d = true},
       {{{{5, true}, {1, false}, {3, false}}},
        {{{17, true}, {1, false}, {31, false}, {32, false}}, 16}}},
      {{.n_heads = 3, .n_key_heads = 1, .key_dim = 128, .value_dim = 7, .has_d = true},
       {{{{1, false}, {2, false}}}, {{{33, false}, {2, true}}, 8}}},
      {{.n_heads = 2, .n_key_heads = 2, .key_dim = 256, .value_dim = 4, .has_d = true},
       {{{{9, false}}}}},
      {{.n_heads = 2, .n_key_heads = 2, .key_dim = 256, .value_dim = 36},
       {{{{11, false}, {40, true}}, 4}}},
      {{.n_heads = 6, .n_key_heads = 2, .key_dim = 32, .value_dim = 32, .delta = true},
       {{{{1, false}, {7, true}, {2, false}}},
        {{{1, false}, {47, true}, {16, false}, {19, false}}, 16}}},
      {{.n_heads = 6,
        .n_key_heads = 2,
        .key_dim = 33,
        .value_dim = 5,
        .by_remainder = true,
        .delta = true},
       {{{{4, false}, {1, true}}}, {{{4, false}, {9, true}}, 8}}},
      {{.n_heads = 2,
        .n_key_heads = 2,
        .key_dim = 128,
        .value_dim = 40,
        .by_remainder = true,
        .delta = true},
       {{{{3, false}}}, {{{67, false}}, 16}}},
      {{.n_heads = 2,
        .n_key_heads = 1,
        .key_dim = 19,
        .value_dim = 34,
        .delta = true,
        .has_d = true},
       {{{{70, true}, {35, false}}, 32}}},
      {{.n_heads = 3,
        .n_key_heads = 3,
        .key_dim = 32,
        .value_dim = 32,
        .delta = true,
        .decay = Decay::kKey},
       {{{{1, false}, {6, true}, {2, false}}},
        {{{1, false}, {19, true}, {8, false}, {11, false}}, 8},
        {{{5, true}, {9, false}}, 0, 40.0f},
        {{{13, true}, {21, false}}, 8, 40.0f}}},
      {{.n_heads = 4,
        .n_key_heads = 2,
        .key_dim = 33,
        .value_dim = 5,
        .delta = true,
        .decay = Decay::kKey},
       {{{{3, false}}}, {{{11, false}, {4, true}}, 4}}},
      {{.n_heads = 1,
        .n_key_heads = 1,
        .key_dim = 128,
        .value_dim = 40,
        .delta = true,
        .decay = Decay::kKey},
       {{{{4, true}, {5, false}}},
        {{{37, true}, {2, false}}, 4},
        {{{6, true}, {15, false}}, 8},
        {{{67, false}}, 8}}},
      {{.n_heads = 2,
        .n_key_heads = 1,
        .key_dim = 19,
        .value_dim = 34,
        .by_remainder = true,
        .delta = true,
        .has_d = true,
        .decay = Decay::kKey},
       {{{{70, true}, {35, false}}, 12}, {{{33, false}, {16, true}}, 16}}},
      {{.n_heads = 1,
        .n_key_heads = 1,
        .key_dim = 16,
        .value_dim = 67,
        .has_d = true,
        .decay = Decay::kState},
       {{{{1, false}, {6, true}, {2, false}}}}},
      {{.n_heads = 3,
        .n_key_heads = 1,
        .key_dim = 19,
        .value_dim = 4,
        .has_d = true,
        .decay = Decay::kState},
       {{{{5, false}}}}},
  };
}

}  // namespace

std::vector<OpCase> recurrence_cases() {
  std::vector<OpCase> cases;
  for (const auto& [shape, runs] : shape_runs()) {
    for (const Run& run : runs) {
      const RecurrenceCase test{shape, run.sequences, run.piece_rows, run.a_scale};
      cases.push_back(
          {.op = "recurrence",
           .name = test.name(),
           .prepare = [test](OpBed& bed) { return test.prepare(bed); },
           .supported = [test](const vk::DevicePlan& device) { return test.supported(device); }});
    }
  }
  return cases;
}

}  // namespace pumice::ops
