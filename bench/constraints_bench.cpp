// What a mask costs over a real vocabulary: along texts, with an automaton that nobody has used before.
//
//   bench/pumice_bench_constraints VOCABULARY.gguf [SCHEMAS.jsonl] [Google Benchmark's flags]
//
// SCHEMAS.jsonl: lines {"schema": …, "tests": [{"data": …, "valid": …}]}; masks along the valid values.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/json.hpp"
#include "constraints/gbnf.hpp"
#include "constraints/json_schema.hpp"
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

class Times {
 public:
  /// What `body` returns, timed.
  template <typename Body>
  bool time(const Body& body) {
    const auto begin = std::chrono::steady_clock::now();
    const bool ok = body();
    const auto end = std::chrono::steady_clock::now();
    us_.push_back(std::chrono::duration<double, std::micro>(end - begin).count());
    return ok;
  }
  void tell(benchmark::State& state, const std::string& prefix = "") {
    std::ranges::sort(us_);
    state.counters[prefix + "mean_us"] =
        std::accumulate(us_.begin(), us_.end(), 0.0) / static_cast<double>(us_.size());
    state.counters[prefix + "p50_us"] = us_[us_.size() / 2];
    state.counters[prefix + "p99_us"] = us_[us_.size() * 99 / 100];
    state.counters[prefix + "max_us"] = us_.back();
  }

 private:
  std::vector<double> us_;
};

/// Every mask along the text. False: a mask failed, or the text does not match.
bool walk(Matcher matcher, std::span<const TokenId> tokens, std::vector<uint32_t>& mask,
          Times& times) {
  for (const TokenId token : tokens) {
    if (!times.time([&] { return matcher.mask(mask).ok(); })) return false;
    if (!matcher.accept(token).ok()) return false;
  }
  return true;
}

/// Along the text, from a new constraint each time.
void masks(benchmark::State& state, const Case& from,
           const std::shared_ptr<const VocabularyTrie>& trie) {
  const std::vector<TokenId> tokens =
      trie->tokenizer().encode(from.text, {.add_special = false}).value();
  Times times;
  std::vector<uint32_t> mask(trie->mask_words());
  for (auto _ : state) {
    if (!walk(Matcher(make_constraint(from, trie)), tokens, mask, times)) {
      return state.SkipWithError("the text does not match");
    }
  }
  times.tell(state);
}

using Json = nlohmann::ordered_json;
using Names = std::vector<std::string>;

/// Of each `properties` of a schema.
void collect_names(const Json& schema, std::vector<Names>& lists) {
  if (!schema.is_structured()) return;
  for (const auto& [keyword, inner] : schema.items()) {
    if (schema.is_object() && keyword == "properties" && inner.is_object()) {
      Names& names = lists.emplace_back();
      for (const auto& property : inner.items()) names.push_back(property.key());
    }
    collect_names(inner, lists);
  }
}

/// With the members of each object as they come in the list that has most of them.
Json in_order(const Json& value, const std::vector<Names>& lists) {
  if (!value.is_structured()) return value;
  Json ordered = value.is_array() ? Json::array() : Json::object();
  if (value.is_array()) {
    for (const Json& item : value) ordered.push_back(in_order(item, lists));
    return ordered;
  }
  const auto n_shared = [&](const Names& names) {
    return std::ranges::count_if(names,
                                 [&](const std::string& name) { return value.contains(name); });
  };
  const Names none;
  const auto best = std::ranges::max_element(lists, {}, n_shared);
  const Names& order = best != lists.end() ? *best : none;
  Names members;
  for (const auto& member : value.items()) members.push_back(member.key());
  std::ranges::stable_sort(members, {}, [&](const std::string& name) {
    return std::ranges::find(order, name) - order.begin();
  });
  for (const std::string& name : members) ordered[name] = in_order(value[name], lists);
  return ordered;
}

/// A schema that a grammar can be made of, and its valid values as tokens.
struct SchemaCase {
  std::string schema;
  std::shared_ptr<const Constraint> constraint;
  std::vector<std::vector<TokenId>> texts;

  /// False: the grammar wants the members in another order.
  bool add(const std::string& text) {
    const auto tokens = constraint->vocabulary().tokenizer().encode(text, {.add_special = false});
    Matcher matcher(constraint);
    for (const TokenId token : tokens.value()) {
      if (!matcher.accept(token).ok()) return false;
    }
    texts.push_back(tokens.value());
    return true;
  }
};

struct Schemas {
  std::vector<SchemaCase> cases;
  size_t n_refused = 0, n_left_out = 0;
};

Result<Schemas> read_schemas(const char* path, const std::shared_ptr<const VocabularyTrie>& trie) {
  constexpr size_t kLongestLine = 16 << 20;
  std::ifstream stream(path);
  Schemas all;
  for (std::string line; std::getline(stream, line);) {
    PUMICE_TRY(const Json row, read_ordered_json(line, kLongestLine));
    SchemaCase one{.schema = row.at("schema").dump(), .constraint = nullptr, .texts = {}};
    const auto grammar = compile_json_schema(one.schema);
    if (!grammar.ok()) {
      ++all.n_refused;
      continue;
    }
    PUMICE_TRY(one.constraint, Constraint::create(*grammar, trie));
    std::vector<Names> lists;
    collect_names(row.at("schema"), lists);
    for (const Json& example : row.at("tests")) {
      if (!example.at("valid").get<bool>()) continue;
      all.n_left_out += one.add(in_order(example.at("data"), lists).dump()) ? 0 : 1;
    }
    one.constraint = nullptr;  // what is timed begins without what this one has learned
    all.cases.push_back(std::move(one));
  }
  if (all.cases.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "no schemas in {}", path);
  }
  return all;
}

/// Of each schema a new constraint, which its values share: how long until its first mask is there
/// (`ready_`), and masks along the values.
void schemas(benchmark::State& state, const Schemas& all,
             const std::shared_ptr<const VocabularyTrie>& trie) {
  Times ready;
  Times times;
  std::vector<uint32_t> mask(trie->mask_words());
  for (auto _ : state) {
    for (const SchemaCase& one : all.cases) {
      std::shared_ptr<const Constraint> constraint;
      const bool ok = ready.time([&] {
        constraint = Constraint::create(compile_json_schema(one.schema).value(), trie).value();
        return Matcher(constraint).mask(mask).ok();
      });
      if (!ok) return state.SkipWithError("a mask failed");
      for (const auto& tokens : one.texts) {
        if (!walk(Matcher(constraint), tokens, mask, times)) {
          return state.SkipWithError("a valid value does not match");
        }
      }
    }
  }
  times.tell(state);
  ready.tell(state, "ready_");
  state.counters["schemas"] = static_cast<double>(all.cases.size());
  state.counters["refused"] = static_cast<double>(all.n_refused);
  state.counters["values_left_out"] = static_cast<double>(all.n_left_out);
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
  if (argc != 2 && argc != 3) {
    std::fprintf(stderr,
                 "usage: pumice_bench_constraints VOCABULARY.gguf [SCHEMAS.jsonl] "
                 "[--benchmark_…]\n");
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
  Schemas all;
  if (argc == 3) {
    Result<Schemas> read = read_schemas(argv[2], *trie);
    if (!read.ok()) {
      std::fprintf(stderr, "%s\n", read.error().message.c_str());
      return exit_code(read.error().code);
    }
    all = std::move(read).value();
    benchmark::RegisterBenchmark("schemas", [&](benchmark::State& state) {
      schemas(state, all, *trie);
    })->Unit(benchmark::kMillisecond);
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace pumice

int main(int argc, char** argv) { return pumice::run(argc, argv); }
