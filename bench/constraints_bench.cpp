// What a mask costs over a real vocabulary: along texts, with an automaton that nobody has used before.
//
//   bench/pumice_bench_constraints VOCABULARY.gguf [Google Benchmark's flags]
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "constraints/gbnf.hpp"
#include "constraints/matcher.hpp"
#include "models/vocabulary_loader.hpp"

namespace pumice {
namespace {

struct Case {
  const char* name;
  const char* grammar;
  const char* text;
};

constexpr const char* kJson = R"(
root ::= value
value ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" ws ( string ws ":" ws value (ws "," ws string ws ":" ws value)* )? ws "}"
array ::= "[" ws ( value (ws "," ws value)* )? ws "]"
string ::= "\"" ([^"\\\x00-\x1F\x7F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4}))* "\""
number ::= "-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)? ([eE] [-+]? [0-9]+)?
ws ::= [ \t\n]*
)";
constexpr const char* kRecord = R"(
root ::= "{\"name\": " text{1} ", \"age\": " [0-9]{1,3} ", \"note\": " text ", \"kind\": " ("\"cat\"" | "\"dog\"" | "\"horse\"") "}"
text ::= "\"" ([^"\\\x00-\x1F\x7F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4})){0,200} "\""
)";
constexpr const char* kText = R"({
  "name": "Ada Lovelace", "born": 1815, "fields": ["mathematics", "computing \u2014 \"engines\""],
  "address": {"street": "12 St James's Square", "city": "London", "zip": null, "geo": [51.507, -0.135]},
  "notes": "She wrote the first algorithm that was meant for a machine, and saw that it could do more than count.",
  "alive": false
})";
constexpr const char* kRecordText =
    R"({"name": "Bello the Great", "age": 7, "note": "Barks at 3 o'clock; likes cheese, and the neighbour's cat.", "kind": "dog"})";

constexpr Case kCases[] = {{"json", kJson, kText}, {"record", kRecord, kRecordText}};

std::shared_ptr<const Constraint> make_constraint(
    const Case& from, const std::shared_ptr<const VocabularyTrie>& trie) {
  return Constraint::create(parse_gbnf(from.grammar, {}).value(), trie).value();
}

/// Every mask along the text, from a new constraint each time.
void masks(benchmark::State& state, const Case& from,
           const std::shared_ptr<const VocabularyTrie>& trie) {
  const std::vector<TokenId> tokens =
      trie->tokenizer().encode(from.text, {.add_special = false}).value();
  std::vector<double> times_us;
  std::vector<uint32_t> mask(trie->mask_words());
  for (auto _ : state) {
    Matcher matcher(make_constraint(from, trie));
    for (const TokenId token : tokens) {
      const auto begin = std::chrono::steady_clock::now();
      if (!matcher.mask(mask).ok()) return state.SkipWithError("a mask failed");
      times_us.push_back(
          std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
              .count());
      if (!matcher.accept(token).ok()) return state.SkipWithError("the text does not match");
    }
  }
  std::ranges::sort(times_us);
  state.counters["mean_us"] =
      std::accumulate(times_us.begin(), times_us.end(), 0.0) / static_cast<double>(times_us.size());
  state.counters["p50_us"] = times_us[times_us.size() / 2];
  state.counters["p99_us"] = times_us[times_us.size() * 99 / 100];
  state.counters["max_us"] = times_us.back();
}

/// From the text of the grammar to the first mask.
void ready(benchmark::State& state, const Case& from,
           const std::shared_ptr<const VocabularyTrie>& trie) {
  std::vector<uint32_t> mask(trie->mask_words());
  for (auto _ : state) {
    if (!Matcher(make_constraint(from, trie)).mask(mask).ok())
      return state.SkipWithError("a mask failed");
  }
}

int run(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (argc != 2) {
    std::fprintf(stderr, "usage: pumice_bench_constraints VOCABULARY.gguf [--benchmark_…]\n");
    return 2;
  }
  const Result<GgufFile> file = GgufFile::open(argv[1]);
  const Result<Tokenizer> tokenizer = file.ok() ? load_tokenizer(*file) : file.error();
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", tokenizer.error().message.c_str());
    return exit_code(tokenizer.error().code);
  }
  const auto trie = VocabularyTrie::create(*tokenizer);
  if (!trie.ok()) return exit_code(trie.error().code);
  for (const Case& one : kCases) {
    benchmark::RegisterBenchmark(
        (std::string("masks/") + one.name).c_str(),
        [&one, &trie](benchmark::State& state) { masks(state, one, *trie); });
    benchmark::RegisterBenchmark(
        (std::string("ready/") + one.name).c_str(),
        [&one, &trie](benchmark::State& state) { ready(state, one, *trie); })
        ->Unit(benchmark::kMicrosecond);
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace pumice

int main(int argc, char** argv) { return pumice::run(argc, argv); }
