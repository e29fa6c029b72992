#include "bench/submission.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/json.hpp"
#include "bench/evaluation.hpp"
#include "tests/paths.hpp"

namespace pumice::bench {
namespace {

using SubmissionJson = nlohmann::json;

constexpr size_t kMostBytes = size_t{64} << 20;

/// One that was measured, with the hash that those of its day had not.
SubmissionJson complete_record() {
  const Result<SubmissionJson> records = read_json_file(
      test::source_path("bench/results/lavapipe-26-2026-11-24-model-gpt-oss-20b.json"), kMostBytes);
  EXPECT_TRUE(records.ok()) << records.error().message;
  SubmissionJson record = records->at(0);
  record["model_hash"] = std::string(32, 'a');
  return record;
}

std::string refusal(const SubmissionJson& records) {
  const Result<SubmissionJson> ready = submission(records.dump(), "mine.json");
  return ready.ok() ? "taken" : ready.error().message;
}

TEST(Submission, TakesRecordsWithAllEvidence) {
  const SubmissionJson record = complete_record();
  const Result<SubmissionJson> ready = submission(SubmissionJson{record, record}.dump(), "x");
  ASSERT_TRUE(ready.ok()) << ready.error().message;
  EXPECT_EQ((*ready)["pumice_submission"], 1);
  EXPECT_EQ((*ready)["records"], (SubmissionJson{record, record}));
  const Result<SubmissionJson> lines = submission(record.dump() + "\n" + record.dump() + "\n", "x");
  ASSERT_TRUE(lines.ok()) << lines.error().message;
  EXPECT_EQ(*lines, *ready);
}

TEST(Submission, NamesWhatARecordLacks) {
  struct Case {
    const char* pointer;
    SubmissionJson value;
    const char* lacks;
  };
  const Case cases[] = {
      {"/evidence", {{"checked", false}}, "an output check (evidence; measure without --no-check)"},
      {"/evidence", nullptr, "an output check ("},
      {"/evidence/passed", false, "an output check that passed"},
      {"/checked_after", false, "an output check after the test"},
      {"/machine", nullptr, "clocks before the test (machine.before"},
      {"/machine/after/processor", SubmissionJson::object(), "clocks after the test"},
      {"/machine/after/processor/clock_mhz", SubmissionJson::array(), "clocks after the test"},
      {"/machine/after/processor/clock_mhz", 0, "clocks after the test"},
      {"/device/type", "discrete", "clocks before the test"},  // of the processor do not count
      {"/device/driver_info", "", "the driver (device.driver_info)"},
      {"/device/driver_name", nullptr, "the driver (device.driver_name)"},
      {"/model_hash", "", "the model's hash"},
      {"/samples_ns", SubmissionJson::array(), "a score"},
      {"/error", "device lost", "a score (its test ended with: device lost)"},
  };
  for (const Case& one : cases) {
    SubmissionJson record = complete_record();
    record[SubmissionJson::json_pointer(one.pointer)] = one.value;
    const std::string message = refusal({complete_record(), record});
    EXPECT_NE(message.find("mine.json: record 2 cannot be submitted; it lacks"), message.npos)
        << one.pointer << ": " << message;
    EXPECT_NE(message.find(one.lacks), message.npos) << message;
  }
  SubmissionJson record = complete_record();
  record.erase("model_hash");
  record.erase("evidence");
  const std::string message = refusal({record});
  EXPECT_NE(message.find("an output check"), message.npos) << message;
  EXPECT_NE(message.find("the model's hash"), message.npos) << message;
}

TEST(Submission, TheClocksOfAGpuAreItsOwn) {
  SubmissionJson record = complete_record();
  record["device"]["type"] = "discrete";
  for (const char* const when : {"before", "after"}) {
    record["machine"][when]["gpu"] = {{"source", "NVML"}, {"clock_mhz", 1980}};
  }
  EXPECT_EQ(refusal({record}), "taken");
}

TEST(Submission, RefusesWhatIsNotARecordByTheSchema) {
  for (const char* const text : {"[]", "[7]", "{}", "[{\"bench\": \"ops\"}]", "7", "", "[[]]"}) {
    const Result<SubmissionJson> ready = submission(text, "mine.json");
    ASSERT_FALSE(ready.ok()) << text;
    EXPECT_EQ(ready.error().code, ErrorCode::kBadFile);
    EXPECT_TRUE(ready.error().message.starts_with("mine.json")) << ready.error().message;
  }
  for (const char* const pointer : {"/n_gen", "/samples_ts", "/device/heaps", "/command"}) {
    SubmissionJson record = complete_record();
    record[SubmissionJson::json_pointer(pointer)] = SubmissionJson{{"a", 1}};
    const std::string message = refusal({record});
    EXPECT_NE(message.find("record.schema.json"), message.npos) << pointer << ": " << message;
  }
}

TEST(Submission, PathsOfModelsAreCutToTheirNames) {
  SubmissionJson record = complete_record();
  record["model_filename"] = "/home of me/models/x.gguf";
  record["command"] = "pumice bench -m '/home of me/models/x.gguf' -o json";
  const Result<SubmissionJson> ready = submission(record.dump(), "x");
  ASSERT_TRUE(ready.ok()) << ready.error().message;
  EXPECT_EQ((*ready)["records"][0]["model_filename"], "x.gguf");
  EXPECT_EQ((*ready)["records"][0]["command"], "pumice bench -m 'x.gguf' -o json");
  record["model_filename"] = "/my models'/x.gguf";
  record["command"] = "pumice bench -m '/my models'\\''/x.gguf'";
  const Result<SubmissionJson> quoted = submission(record.dump(), "x");
  ASSERT_TRUE(quoted.ok()) << quoted.error().message;
  EXPECT_EQ((*quoted)["records"][0]["command"], "pumice bench -m 'x.gguf'");
}

TEST(Submission, TheSchemaIsOfDraft7AndHoldsForEveryRecordOfAModelThatWasKept) {
  const Result<SubmissionJson> schema = read_json(record_schema_text(), kMostBytes);
  ASSERT_TRUE(schema.ok()) << schema.error().message;
  const auto judge = SchemaJudge::create(*schema);
  ASSERT_TRUE(judge.ok()) << judge.error().message;
  size_t n_records = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(test::source_path("bench/results"))) {
    if (entry.path().extension() != ".json") continue;
    const Result<SubmissionJson> records = read_json_file(entry.path(), kMostBytes);
    ASSERT_TRUE(records.ok()) << records.error().message;
    if (!records->is_array()) continue;
    for (const SubmissionJson& record : *records) {
      EXPECT_EQ((*judge)->problem_with(record), "") << entry.path();
      ++n_records;
    }
  }
  EXPECT_GT(n_records, 10u);
}

}  // namespace
}  // namespace pumice::bench
