#include "bench/result_file.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace pumice::bench {
namespace {

std::string error_of(std::string_view text) {
  const Result<ResultFile> file = parse_results(text, "a.json");
  return file.ok() ? "read" : file.error().message;
}

std::vector<ResultRow> rows_of(std::string_view text) {
  Result<ResultFile> file = parse_results(text, "folder/a.json");
  EXPECT_TRUE(file.ok()) << error_of(text);
  return file.ok() ? std::move(file)->rows : std::vector<ResultRow>{};
}

constexpr const char* kLlamaBench = R"([{"build_commit": "abc123", "gpu_info": "Some GPU",
  "model_filename": "/models/tiny.gguf", "model_type": "llama 1B Q4_K - Medium", "model_size": 100,
  "model_n_params": 7, "n_batch": 2048, "n_ubatch": 512, "type_k": "f16", "type_v": "f16",
  "n_prompt": 512, "n_gen": 0, "n_depth": 4096, "test_time": "2026-01-31T12:00:00Z",
  "avg_ts": 1, "samples_ns": [1000000000, 2000000000], "samples_ts": [512.0, 256.0]}])";

TEST(ResultFile, ReadsTheRecordsOfLlamaBench) {
  const std::vector<ResultRow> rows = rows_of(kLlamaBench);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].kind, ResultRow::Kind::kModel);
  EXPECT_EQ(rows[0].test, "pp512 @ d4096");
  EXPECT_EQ(rows[0].model, "tiny.gguf");
  EXPECT_EQ(rows[0].device, "Some GPU");
  EXPECT_EQ(rows[0].commit, "abc123");
  EXPECT_EQ(rows[0].samples, (std::vector<double>{512, 256}));
  EXPECT_TRUE(rows[0].more_is_better);
  EXPECT_EQ(rows[0].problem, "");
}

TEST(ResultFile, ACommitWhoseWorkTreeDifferedIsMarked) {
  const auto commit_of = [](const std::string& dirty) {
    return rows_of(R"({"n_prompt": 1, "n_gen": 0, "samples_ns": [1], "build_commit": "abc")" +
                   dirty + "}")[0]
        .commit;
  };
  EXPECT_EQ(commit_of(""), "abc");
  EXPECT_EQ(commit_of(R"(, "build_dirty": false)"), "abc");
  EXPECT_EQ(commit_of(R"(, "build_dirty": true)"), "abc (dirty)");
}

TEST(ResultFile, ComputesSpeedsFromTimesWhereOnlyThoseAreRecorded) {
  const auto rows =
      rows_of(R"({"n_prompt": 0, "n_gen": 10, "n_parallel": 2, "samples_ns": [1e9]})");
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].test, "tg10 x2");
  EXPECT_EQ(rows[0].samples, std::vector<double>{20});
}

TEST(ResultFile, EvidenceIsSaidInAFewWords) {
  const auto said = [](const std::string& evidence) {
    return rows_of(R"({"n_prompt": 1, "n_gen": 0, "samples_ns": [1], "evidence": )" + evidence +
                   "}")
        .at(0)
        .facts["evidence"];
  };
  EXPECT_EQ(said(R"({"checked": false})"), "not checked");
  EXPECT_EQ(said(R"({"checked": true, "passed": true, "nmse_bound": 1e-6, "layers_checked": 2,
                     "layers": 16, "passes": [{"nmse": 1e-9, "digest": "ab"}, {"nmse": 3e-8}]})"),
            "nmse 3.0e-08 of 1e-06, digest ab, 2 of 16 layers");
  EXPECT_EQ(said(R"({"passed": false, "passes": [{"nmse": "inf"}]})"), "logits not finite");
}

TEST(ResultFile, PrefillDecodeAndFirstTokenAreRowsOfTheirOwn) {
  const auto rows = rows_of(R"({"n_prompt": 8, "n_gen": 4, "samples_ns": [1e9], "samples_ts": [12],
    "samples_prefill_ts": [100], "samples_decode_ts": [5], "samples_ttft_ns": [2e6, 4e6]})");
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[1].test, "pp8+tg4: prefill");
  EXPECT_EQ(rows[1].samples, std::vector<double>{100});
  EXPECT_EQ(rows[2].test, "pp8+tg4: decode");
  EXPECT_EQ(rows[3].test, "pp8+tg4: TTFT");
  EXPECT_EQ(rows[3].samples, (std::vector<double>{2, 4}));
  EXPECT_EQ(rows[3].unit, "ms");
  EXPECT_FALSE(rows[3].more_is_better);
}

TEST(ResultFile, ReadsARecordToALine) {
  const auto rows = rows_of(
      "{\"n_prompt\": 8, \"n_gen\": 0, \"samples_ns\": [8]}\n\n"
      "{\"n_prompt\": 8, \"n_gen\": 4, \"samples_ns\": [6]}\r\n");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1].test, "pp8+tg4");
}

TEST(ResultFile, AnErrorOrWrongLogitsLeaveNoScore) {
  EXPECT_EQ(
      rows_of(R"({"n_prompt": 1, "n_gen": 0, "samples_ns": [1], "error": "lost"})")[0].problem,
      "lost");
  EXPECT_NE(rows_of(R"({"n_prompt": 1, "n_gen": 0, "samples_ns": [1],
                        "evidence": {"passed": false}})")[0]
                .problem,
            "");
  EXPECT_EQ(rows_of(R"({"n_prompt": 1, "n_gen": 0, "samples_ns": [1],
                        "evidence": {"passed": true}})")[0]
                .problem,
            "");
  EXPECT_EQ(rows_of(R"({"n_prompt": 1, "n_gen": 0, "samples_ns": []})")[0].problem, "no samples");
}

TEST(ResultFile, ReadsOpsAndPeaks) {
  const auto rows = rows_of(R"({"bench": "ops", "build_commit": "c",
    "device": {"name": "D", "driver_name": "mesa", "driver_info": "25.0"},
    "peaks": [{"name": "read bandwidth", "unit": "GB/s", "value": 10, "bytes": 100, "flops": 0,
               "samples_ns": [10, 20]}],
    "ops": [{"op": "gemv", "case": "Q4_K", "bytes": 5, "flops": 6, "labels": ["gemv", "reduce"],
             "samples_ns": [2000]},
            {"op": "gemv", "case": "Q8_0", "error": "off by 3", "wrong": true}]})");
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].samples, (std::vector<double>{10, 5}));
  EXPECT_EQ(rows[0].driver, "mesa 25.0");
  EXPECT_EQ(rows[1].test, "gemv Q4_K");
  EXPECT_EQ(rows[1].samples, std::vector<double>{2});
  EXPECT_EQ(rows[1].facts["kernels"], "gemv + reduce");
  EXPECT_EQ(rows[2].problem, "WRONG: off by 3");
}

TEST(ResultFile, ReadsServeAndWhatGpuCheckWrote) {
  const auto serve = rows_of(R"({"long_prompt_tokens": 256, "arrivals": [{"chunk": "16",
    "ttft_s": 0.5, "itl_p50_s": 0.01, "itl_p99_s": 0.02}], "repeat": {"cold_ttft_s": 1}})");
  ASSERT_EQ(serve.size(), 4u);
  EXPECT_EQ(serve[0].test, "prompt of 256, chunks 16: TTFT");
  EXPECT_EQ(serve[0].samples, std::vector<double>{500});
  EXPECT_FALSE(serve[0].more_is_better);

  const auto gpu_check =
      rows_of(R"({"gpu_check": 2, "bench ops": null, "peaks": {"ops": [], "peaks": [{"name": "f32",
    "unit": "TFLOP/s", "value": 9}]}, "models": [{"stage": "bench tiny", "records": [{"n_prompt": 1, "n_gen": 0,
    "samples_ns": [1]}]}, {"stage": "layers tiny", "records": {"bench": "layers"}}, {"stage": "ab", "records": null}]})");
  ASSERT_EQ(gpu_check.size(), 2u);
  EXPECT_EQ(gpu_check[0].test, "peak f32");
}

TEST(ResultFile, WhatIsForeignOrHostileIsNamedInOneLine) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "a.json: cannot read JSON"},
      {"GGUF", "a.json: cannot read JSON"},
      {"[]", "no measurements"},
      {"{}", "neither a record"},
      {R"({"bench": "ab", "rows": []})", "results of bench --ab"},
      {"3", "neither a record"},
      {"[3]", "record 1: neither a record"},
      {"[[]]", "record 1 must be an object"},
      {R"([{"n_prompt": 1, "n_gen": 0, "samples_ns": [1]}, {"n_prompt": "x", "n_gen": 0}])",
       "record 2: n_prompt must be"},
      {R"({"n_prompt": 1, "n_gen": 0, "samples_ns": [0]})", "samples_ns must be positive"},
      {R"({"n_prompt": 1, "n_gen": 0, "samples_ns": [1e999]})", "a.json: cannot read JSON"},
      {R"({"n_prompt": 1, "n_gen": 0, "samples_ns": {"a": 1}})", "samples_ns must be an array"},
      {R"({"n_prompt": -1, "n_gen": 0})", "n_prompt must be a number"},
      {R"({"n_prompt": 1, "n_gen": 0, "model_filename": []})", "model_filename must be a string"},
      {R"({"peaks": 1, "ops": []})", "peaks must be an array"},
      {R"({"peaks": [1], "ops": []})", "peak 1 must be an object"},
      {R"({"peaks": [{"unit": "furlongs", "samples_ns": [1]}], "ops": []})", "unit must be"},
      {R"({"arrivals": ["x"]})", "arrival 1 must be an object"},
      {"{\"n_prompt\": 1, \"n_gen\": 0, \"samples_ns\": [1]}\n{", "line 2: cannot read JSON"},
      {std::string(100'000, '['), "nested more than 128 deep"},
      {std::string(100'000, '[') + std::string(100'000, ']'),
       "byte 129: nested more than 128 deep"},
  };
  for (const auto& [text, words] : cases) {
    const std::string message = error_of(text);
    EXPECT_NE(message.find(words), std::string::npos) << text.substr(0, 100) << "\n" << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
    EXPECT_LT(message.size(), 400u);
  }
}

TEST(ResultFile, StringsOfOthersBecomeShortAndPrintable) {
  const auto rows = rows_of(R"({"n_prompt": 1, "n_gen": 0, "samples_ns": [1],
    "model_filename": "a\u001b[31m\n.gguf", "build_commit": ")" +
                            std::string(5000, 'c') + R"("})");
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].model, "a\\x1b[31m\\x0a.gguf");
  EXPECT_LT(rows[0].commit.size(), 600u);
}

}  // namespace
}  // namespace pumice::bench
