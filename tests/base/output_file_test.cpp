#include "base/output_file.hpp"

#include <gtest/gtest.h>

#include <string>

#include "tests/base/file_fixture.hpp"

namespace pumice {
namespace {

class OutputFileTest : public FileTest {};

TEST_F(OutputFileTest, TheOldFileStaysUntilTheNewOneIsWhole) {
  const fs::path target = given("x", "old");
  Result<OutputFile> file = OutputFile::create(target);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->write("ne").ok());
  EXPECT_EQ(content(target), "old");
  EXPECT_EQ(names().size(), 2u);
  ASSERT_TRUE(file->write("w").ok());
  ASSERT_TRUE(file->finish().ok());
  EXPECT_EQ(content(target), "new");
  EXPECT_EQ(names(), Names{"x"});
}

TEST_F(OutputFileTest, WithoutFinishNothingChangesAndNothingIsLeft) {
  const fs::path target = given("x", "old");
  {
    Result<OutputFile> file = OutputFile::create(target);
    ASSERT_TRUE(file.ok() && file->write("new").ok());
  }
  EXPECT_EQ(content(target), "old");
  EXPECT_EQ(names(), Names{"x"});
}

TEST_F(OutputFileTest, AnErrorOfTheLastStepLeavesNothing) {
  Result<OutputFile> file = OutputFile::create(path("x"));
  ASSERT_TRUE(file.ok());
  fs::create_directory(path("x"));  // meanwhile
  EXPECT_EQ(file->finish().error().code, ErrorCode::kBadFile);
  *file = *OutputFile::create(path("y"));
  EXPECT_TRUE(file->finish().ok());
  EXPECT_EQ(names(), (Names{"x", "y"}));
}

TEST_F(OutputFileTest, AFolderIsAnErrorAndStays) {
  fs::create_directory(path("folder"));
  const Status status = write_file(path("folder"), "x");
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kBadFile);
  EXPECT_EQ(status.error().message,
            to_utf8(path("folder")) + ": cannot be written: Is a directory");
  EXPECT_EQ(names(), Names{"folder"});
}

TEST_F(OutputFileTest, WritesWhereItIsToldTo) {
  Result<OutputFile> file = OutputFile::create(path("x"));
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->write_at(4, std::as_bytes(std::span("end", 3))).ok());
  ASSERT_TRUE(file->write_at(0, std::as_bytes(std::span("begi", 4))).ok());
  ASSERT_TRUE(file->resize(6).ok());
  ASSERT_TRUE(file->finish().ok());
  EXPECT_EQ(content(path("x")), "begien");
}

TEST_F(OutputFileTest, TwoWritersAtOnceEachPutAWholeFileThere) {
  Result<OutputFile> first = OutputFile::create(path("x"));
  Result<OutputFile> second = OutputFile::create(path("x"));
  ASSERT_TRUE(first.ok() && second.ok());
  ASSERT_TRUE(first->write("first ").ok() && second->write("second ").ok());
  ASSERT_TRUE(first->write("whole").ok() && second->write("whole").ok());
  ASSERT_TRUE(first->finish().ok());
  EXPECT_EQ(content(path("x")), "first whole");
  ASSERT_TRUE(second->finish().ok());
  EXPECT_EQ(content(path("x")), "second whole");
  EXPECT_EQ(names(), Names{"x"});
}

TEST_F(OutputFileTest, OneOfTwoWritersFindsTheOthersFileIfItMayNotReplaceIt) {
  constexpr auto kRefuse = OutputFile::Existing::kRefuse;
  Result<OutputFile> first = OutputFile::create(path("x"), kRefuse);
  Result<OutputFile> second = OutputFile::create(path("x"), kRefuse);
  ASSERT_TRUE(first.ok() && second.ok());
  ASSERT_TRUE(first->write("first").ok() && second->write("second").ok());
  ASSERT_TRUE(second->finish().ok());
  const Status late = first->finish();
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(content(path("x")), "second");
}

TEST_F(OutputFileTest, WhatALiveWriterWritesIsNoLeftOver) {
  Result<OutputFile> slow = OutputFile::create(path("x"));
  ASSERT_TRUE(slow.ok() && slow->write("slow").ok());
  ASSERT_TRUE(write_file(path("x"), "quick").ok());
  ASSERT_TRUE(slow->finish().ok());
  EXPECT_EQ(content(path("x")), "slow");
}

TEST_F(OutputFileTest, FilesThatOnlyLookLikeTemporariesStay) {
  const Names others = {"x.abc12.pumice-partial", "x.abcDEF.pumice-partial",
                        "xx.abcdef.pumice-partial", "x.abcdef.pumice-partial2"};
  for (const std::string& name : others) given(name, "");
  fs::create_directory(path("x.folder.pumice-partial"));
  ASSERT_TRUE(write_file(path("x"), "whole").ok());
  EXPECT_EQ(names().size(), others.size() + 2);
}

TEST_F(OutputFileTest, OnlyCachesMakeFolders) {
  EXPECT_EQ(write_file(path("a/b/x"), "x").error().code, ErrorCode::kBadFile);
  EXPECT_TRUE(write_cache_file(path("a/b/x"), "x").ok());
  EXPECT_EQ(content(path("a/b/x")), "x");
}

}  // namespace
}  // namespace pumice
