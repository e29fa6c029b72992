// A file must have exactly the tensors that a program reads.
#include "models/program_tensors.hpp"

#include <gtest/gtest.h>

#include "tests/models/small_file.hpp"

namespace pumice {
namespace {

Program program_of(std::vector<TensorSpec> tensors) {
  Program program;
  program.architecture = "llama";
  program.tensors = std::move(tensors);
  return program;
}

std::string error_of(const Program& program, const std::vector<test::SmallTensor>& tensors) {
  const test::SmallFile file(tensors);
  const Status status = check_tensors(file.file(), program);
  if (status.ok()) return "";
  EXPECT_EQ(status.error().code, ErrorCode::kBadFile);
  return status.error().message;
}

TEST(ProgramTensors, OfTheFileAreAllReadInTheirShape) {
  const Program program = program_of({{"a", {8, 4, 2, 1}}, {"b", {8, 1, 1, 1}}});
  EXPECT_EQ(error_of(program, {{"b", {8}}, {"a", {8, 4, 2}}}), "");
}

TEST(ProgramTensors, ThatAreMissingAreNamed) {
  EXPECT_EQ(error_of(program_of({{"a", {8, 1, 1, 1}}, {"b", {8, 1, 1, 1}}}), {{"a", {8}}}),
            "the file has no tensor b");
}

TEST(ProgramTensors, OfAnotherShapeAreNamedWithBothShapes) {
  EXPECT_EQ(error_of(program_of({{"a", {8, 4, 1, 1}}}), {{"a", {4, 8}}}),
            "a: shape 4 x 8 where the metadata say 8 x 4");
  EXPECT_EQ(error_of(program_of({{"a", {8, 4, 1, 1}}}), {{"a", {8, 4, 2}}}),
            "a: shape 8 x 4 x 2 where the metadata say 8 x 4");
  EXPECT_EQ(error_of(program_of({{"a", {8, 1, 1, 1}}}), {{"a", {9}}}),
            "a: shape 9 x 1 where the metadata say 8 x 1");
}

TEST(ProgramTensors, OfATypeThatNothingDecodesAreNamed) {
  GgufHeader header;
  header.add_tensor("a", weight_type("I32"), {8});
  const std::string bytes = header.to_bytes().value() + std::string(32, '\0');
  const GgufFile file = GgufFile::from_memory(std::as_bytes(std::span(bytes)), "small").value();
  EXPECT_EQ(check_tensors(file, program_of({{"a", {8, 1, 1, 1}}})).error().message,
            "a: weight type I32 is not supported yet");
}

TEST(ProgramTensors, ThatNothingReadsAreNamed) {
  EXPECT_EQ(error_of(program_of({{"a", {8, 1, 1, 1}}}), {{"a", {8}}, {"blk.0.attn_q.bi\nas", {8}}}),
            "blk.0.attn_q.bi\\x0aas: nothing in architecture llama reads this tensor; ignoring it "
            "would compute a different model");
}

TEST(ProgramTensors, OfBlocksThatPredictAreCountedAndNotRead) {
  Program program = program_of({{"a", {8, 1, 1, 1}}});
  program.layers.resize(3);
  program.n_prediction_blocks = 2;
  const std::vector<test::SmallTensor> tensors = {
      {"a", {8}}, {"blk.3.nextn.enorm.weight", {16}}, {"blk.4.attn_q.weight", {8, 4}}};
  EXPECT_EQ(error_of(program, tensors), "");
  const test::SmallFile file(tensors);
  EXPECT_EQ(prediction_bytes(file.file(), program), 4u * (16 + 32));
  program.n_prediction_blocks = 1;
  EXPECT_NE(error_of(program, tensors), "");
  EXPECT_EQ(prediction_bytes(file.file(), program), 4u * 16);
}

TEST(ProgramTensors, MustHaveData) {
  const std::string header = [] {
    GgufHeader made;
    made.add_tensor("a", weight_type("F32"), {8});
    return made.to_bytes().value();
  }();
  const GgufFile file = GgufFile::from_memory(std::as_bytes(std::span(header)), "small").value();
  EXPECT_EQ(check_tensors(file, program_of({{"a", {8, 1, 1, 1}}})).error().message,
            "the file holds no tensor data: not a model");
}

}  // namespace
}  // namespace pumice
