#include "bench/records.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <vector>

namespace pumice::bench {
namespace {

using Json = nlohmann::json;

TEST(Records, CsvQuotesAndLeavesAbsentValuesEmpty) {
  const std::vector<Json> records = {{{"n", 1}, {"name", "a \"b\",c"}},
                                     {{"n", 2.5}, {"list", {1, 2}}}};
  EXPECT_EQ(to_csv(records),
            "\"n\",\"name\",\"list\"\n"
            "\"1\",\"a \"\"b\"\",c\",\n"
            "\"2.5\",,\"[1,2]\"\n");
}

TEST(Records, SqlDeclaresWhatTheValuesAre) {
  const std::vector<Json> records = {{{"count", 1}, {"name", "it's"}, {"rate", 1}},
                                     {{"count", 2}, {"rate", 2.5}}};
  EXPECT_EQ(to_sql(records),
            "CREATE TABLE IF NOT EXISTS llama_bench (\n"
            "  \"count\" INTEGER,\n  \"name\" TEXT,\n  \"rate\" REAL\n);\n"
            "\nINSERT INTO llama_bench (\"count\", \"name\", \"rate\") VALUES (1, 'it''s', 1);\n"
            "\nINSERT INTO llama_bench (\"count\", \"name\", \"rate\") VALUES (2, NULL, 2.5);\n");
}

TEST(Records, WhatWasNotMeasuredIsAbsentAndKeepsItsType) {
  const std::vector<Json> records = {{{"error", nullptr}, {"rate", std::nan("")}}};
  EXPECT_EQ(to_csv(records), "\"error\",\"rate\"\n,\n");
  EXPECT_EQ(to_sql(records),
            "CREATE TABLE IF NOT EXISTS llama_bench (\n  \"error\" TEXT,\n  \"rate\" REAL\n);\n"
            "\nINSERT INTO llama_bench (\"error\", \"rate\") VALUES (NULL, NULL);\n");
}

TEST(Records, JsonlIsALineWhateverTheTextHolds) {
  EXPECT_EQ(to_jsonl({{"name", "a\nb\xFF"}}), "{\"name\":\"a\\nb\xEF\xBF\xBD\"}");
}

}  // namespace
}  // namespace pumice::bench
