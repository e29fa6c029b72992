// Transfers carried out in pieces: how large they are, in which order, and what fails with what.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/cache/fake_device.hpp"
#include "tests/temporary_folder.hpp"

namespace pumice {
namespace {

using Kind = ByteMover::Piece::Kind;

constexpr uint32_t kMoverBlockTokens = 4;
constexpr uint64_t kMoverBlockBytes = 8 * kMoverBlockTokens;
constexpr uint64_t kMuch = kMoverBlockBytes * 1000;

class ByteMoverTest : public testing::Test {
 protected:
  static KvCacheOptions options(uint32_t n_blocks, uint64_t host_blocks) {
    return {.n_pages = n_blocks,
            .block_tokens = kMoverBlockTokens,
            .page_bytes = kMoverBlockBytes,
            .host_bytes = host_blocks * kMoverBlockBytes};
  }
  std::filesystem::path path() const { return folder_.path() / "prompts.cache"; }

  test::TemporaryFolder folder_;
};

struct MoverRig : CacheRig {
  using CacheRig::CacheRig;

  Status carry_out(const ByteMover::Piece& piece) {
    return piece.kind == Kind::kRead ? device.read(piece.items) : device.write(piece.items);
  }
  /// All but the pieces of one kind whose numbers are given.
  TransferFailures carry_out(ByteMover& mover, Kind kind, const std::vector<int>& broken) {
    int n_pieces = 0;
    for (ByteMover::Piece piece = mover.next(); piece.kind != Kind::kDone; piece = mover.next()) {
      device.broken = piece.kind == kind && std::ranges::find(broken, n_pieces) != broken.end();
      if (piece.kind == kind) ++n_pieces;
      mover.finish_piece(carry_out(piece));
    }
    device.broken = false;
    return mover.take_failures();
  }
};

TEST_F(ByteMoverTest, PiecesHaveAsManyPagesAsAskedForAndReadsComeFirst) {
  MoverRig rig(options(16, 10));
  ASSERT_TRUE(rig.cache.open_prompt_cache(path(), kMuch).ok());
  for (const uint32_t first : {1u, 100u, 200u, 300u}) rig.run(counting(28, first));
  rig.begin(counting(28, 400));  // what gives up its blocks takes host memory from the first
  const SequenceId id = rig.begin(counting(28));
  const Transfers transfers = rig.cache.take_transfers();
  ASSERT_GE(transfers.demotions.size(), 2u);
  ASSERT_GE(transfers.saves.size(), 7u);
  ASSERT_EQ(transfers.restores.size(), 7u);
  ByteMover mover(rig.cache, transfers, 3, {});
  size_t n_read = 0;
  std::vector<size_t> written;
  while (true) {
    const ByteMover::Piece piece = mover.next();
    if (piece.kind == Kind::kDone) break;
    EXPECT_LE(piece.items.size(), 3u);
    if (piece.kind == Kind::kRead) {
      EXPECT_TRUE(written.empty());
      n_read += piece.items.size();
    } else {
      written.push_back(piece.items.size());
    }
    mover.finish_piece(rig.carry_out(piece));
  }
  EXPECT_EQ(n_read, transfers.saves.size());
  EXPECT_EQ(written, (std::vector<size_t>{3, 3, 1}));
  EXPECT_TRUE(mover.next().items.empty()) << "it stays done";
  EXPECT_TRUE(rig.cache.finish_transfers(transfers.batch, mover.take_failures()).empty());
  EXPECT_EQ(rig.cache.report(id).cached_tokens, 27u);
  rig.device.compute(id, counting(28), {}, 28);
  EXPECT_EQ(rig.device.wrong_positions(id, counting(28), {}), 0u);
  EXPECT_WHOLE(rig.cache);
}

TEST_F(ByteMoverTest, APieceThatCannotBeReadFailsItsSavesAndNoOthers) {
  MoverRig rig(options(8, 8));
  rig.run(counting(32));
  const SequenceId id = rig.begin(counting(32, 100));
  const Transfers transfers = rig.cache.take_transfers();
  ASSERT_EQ(transfers.saves.size(), 8u);
  ByteMover mover(rig.cache, transfers, 3, {});
  const TransferFailures failures = rig.carry_out(mover, Kind::kRead, {1});
  EXPECT_EQ(failures.saves, (std::vector<size_t>{3, 4, 5}));
  EXPECT_TRUE(failures.restores.empty());
  EXPECT_TRUE(mover.take_failures().saves.empty()) << "they are told once";
  EXPECT_TRUE(rig.cache.finish_transfers(transfers.batch, failures).empty());
  rig.cache.release(id);
  EXPECT_EQ(rig.cached(counting(32)), 8u) << "saved from the end on: blocks 4, 3 and 2 are lost";
  EXPECT_WHOLE(rig.cache);
}

TEST_F(ByteMoverTest, APieceThatCannotBeWrittenFailsItsRestoresAndNoOthers) {
  MoverRig rig(options(8, 16));
  for (const uint32_t first : {1u, 100u, 200u}) rig.run(counting(32, first));
  const SequenceId one = rig.begin(counting(15));
  const SequenceId other = rig.begin(counting(15, 100));
  const Transfers transfers = rig.cache.take_transfers();
  const size_t n_of_one =
      static_cast<size_t>(std::ranges::count(transfers.restores, one, &PageRestore::sequence));
  ByteMover mover(rig.cache, transfers, n_of_one, {});
  const TransferFailures failures = rig.carry_out(mover, Kind::kWrite, {1});
  ASSERT_FALSE(failures.restores.empty());
  EXPECT_EQ(failures.restores.front(), n_of_one);
  EXPECT_EQ(rig.cache.finish_transfers(transfers.batch, failures), std::vector<SequenceId>{other});
  rig.device.compute(one, counting(15), {}, 15);
  EXPECT_EQ(rig.device.wrong_positions(one, counting(15), {}), 0u);
  rig.cache.release(other);
  EXPECT_WHOLE(rig.cache);
}

TEST_F(ByteMoverTest, ABlockDamagedInTheFileFailsAndTheOthersOfItsPieceDoNot) {
  {
    MoverRig rig(options(16, 0));
    ASSERT_TRUE(rig.cache.open_prompt_cache(path(), kMuch).ok());
    rig.run(counting(18));
    ASSERT_TRUE(save_prompt_cache(rig.cache, rig.device).ok());
  }
  {
    std::fstream file(path(), std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(4096 + 2 * kMoverBlockBytes + 5).put('\x77');
  }
  MoverRig rig(options(16, 0));
  ASSERT_TRUE(rig.cache.open_prompt_cache(path(), kMuch).ok());
  const SequenceId id = rig.begin(counting(18));
  const Transfers transfers = rig.cache.take_transfers();
  ASSERT_EQ(transfers.restores.size(), 5u);
  ByteMover mover(rig.cache, transfers, 4, {});
  const ByteMover::Piece piece = mover.next();
  EXPECT_EQ(piece.kind, Kind::kWrite);
  EXPECT_EQ(piece.items.size(), 4u);
  mover.finish_piece(rig.carry_out(piece));
  EXPECT_EQ(mover.next().kind, Kind::kDone);
  const TransferFailures failures = mover.take_failures();
  EXPECT_EQ(failures.restores, std::vector<size_t>{2});
  EXPECT_EQ(rig.cache.finish_transfers(transfers.batch, failures), std::vector<SequenceId>{id});
  rig.cache.release(id);
  EXPECT_EQ(rig.cached(counting(18)), 8u);
}

/// A pool in which one sequence evicts a block that the next one finds again.
struct EvictedAndFound : MoverRig {
  explicit EvictedAndFound(const KvCacheOptions& options) : MoverRig(options) {}
  SequenceId evict() {
    run(counting(16));
    run(counting(4, 300));
    return begin(counting(20, 100));
  }
  SequenceId find() { return begin(counting(16)); }  // its last block is to be restored
};

TEST_F(ByteMoverTest, WhatCouldNotBeSavedIsNotRestoredFromWhereItWasToBe) {
  for (const bool to_file : {false, true}) {
    EvictedAndFound rig(options(9, to_file ? 0 : 8));
    ASSERT_TRUE(!to_file || rig.cache.open_prompt_cache(path(), kMuch).ok());
    rig.evict();
    const SequenceId found = rig.find();
    const Transfers transfers = rig.cache.take_transfers();
    ASSERT_EQ(transfers.saves.size(), 2u);
    ASSERT_EQ(transfers.restores.size(), 1u);
    ByteMover mover(rig.cache, transfers, 1, {});
    const TransferFailures failures = rig.carry_out(mover, Kind::kRead, {0});
    EXPECT_EQ(failures.saves, std::vector<size_t>{0});
    EXPECT_EQ(rig.cache.finish_transfers(transfers.batch, failures),
              std::vector<SequenceId>{found});
    rig.cache.release(found);
    EXPECT_EQ(rig.cached(counting(16)), 12u);
    EXPECT_WHOLE(rig.cache);
  }
}

TEST_F(ByteMoverTest, ABatchPlannedBeforeAFailureWasKnownRestoresNothingOfIt) {
  EvictedAndFound rig(options(9, 8));
  rig.evict();
  const Transfers saves = rig.cache.take_transfers();
  const SequenceId found = rig.find();
  const Transfers restores = rig.cache.take_transfers();
  ASSERT_EQ(saves.saves.size(), 1u);
  ASSERT_EQ(restores.restores.size(), 1u);
  EXPECT_TRUE(rig.cache.finish_transfers(saves.batch, {.saves = {0}}).empty());
  EXPECT_EQ(rig.cache.finish_transfers(restores.batch), std::vector<SequenceId>{found});
  rig.cache.release(found);
  EXPECT_WHOLE(rig.cache);
}

TEST_F(ByteMoverTest, WhatNeverCameToHostMemoryIsNotFoundInTheFileItWasToGoOnTo) {
  EvictedAndFound rig(options(9, 1));
  ASSERT_TRUE(rig.cache.open_prompt_cache(path(), kMuch).ok());
  rig.evict();
  const Transfers first = rig.cache.take_transfers();
  const SequenceId next = rig.begin(counting(4, 500));  // evicts another block, into the same slot
  const Transfers second = rig.cache.take_transfers();
  ASSERT_EQ(first.saves.size(), 1u);
  ASSERT_EQ(second.demotions.size(), 1u);
  EXPECT_TRUE(rig.cache.finish_transfers(first.batch, {.saves = {0}}).empty());
  EXPECT_TRUE(rig.cache.finish_transfers(second.batch).empty());
  EXPECT_EQ(rig.cached(counting(17)), 12u);
  rig.cache.release(next);
  EXPECT_WHOLE(rig.cache);
}

TEST_F(ByteMoverTest, AFileThatCannotBeWrittenIsAnErrorAndNotReadEither) {
  EvictedAndFound rig(options(9, 0));
  ASSERT_TRUE(rig.cache.open_prompt_cache(folder_.path() / "no" / "such" / "folder", kMuch).ok());
  rig.evict();
  const SequenceId found = rig.find();
  const Transfers transfers = rig.cache.take_transfers();
  ByteMover mover(rig.cache, transfers, 8, {});
  const TransferFailures failures = rig.carry_out(mover, Kind::kRead, {});
  EXPECT_EQ(failures.saves, (std::vector<size_t>{0, 1}));
  EXPECT_EQ(failures.restores, std::vector<size_t>{0});
  EXPECT_EQ(rig.cache.finish_transfers(transfers.batch, failures), std::vector<SequenceId>{found});
  rig.cache.release(found);
  EXPECT_WHOLE(rig.cache);
}

// Sanitizers end a program that asks for so much.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(__clang__)
TEST_F(ByteMoverTest, WithoutHostMemoryNothingIsReadAndTheBlocksAreForgotten) {
  constexpr uint64_t kTooMuch = uint64_t{1} << 60;  // a block: no system gives so much
  KvCacheOptions huge = options(4, 0);
  huge.page_bytes = kTooMuch;
  huge.host_bytes = 8 * kTooMuch;
  MoverRig rig(huge);
  rig.run(counting(16));
  const SequenceId id = rig.begin(counting(8, 100));
  const Transfers transfers = rig.cache.take_transfers();
  ASSERT_EQ(transfers.saves.size(), 2u);
  ByteMover mover(rig.cache, transfers, 3, {});
  EXPECT_EQ(mover.next().kind, Kind::kDone);
  const TransferFailures failures = mover.take_failures();
  EXPECT_EQ(failures.saves, (std::vector<size_t>{0, 1}));
  EXPECT_TRUE(rig.cache.finish_transfers(transfers.batch, failures).empty());
  EXPECT_EQ(rig.cached(counting(17)), 8u);
  rig.cache.release(id);
  EXPECT_WHOLE(rig.cache);
}
#endif

}  // namespace
}  // namespace pumice
