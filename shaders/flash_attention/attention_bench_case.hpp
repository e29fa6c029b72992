// Attention of one sequence for timing: inputs of any size at the cost of a small pattern, on
// several copies of KV, and a sample of the expected output. Equal arguments give equal inputs.
#pragma once

#include <cstddef>
#include <vector>

#include "shaders/common/paged_kv_case.hpp"
#include "shaders/flash_attention/flash_attention.hpp"
#include "shaders/op_case.hpp"

namespace pumice::ops {

/// `rows` tokens of one sequence after `before` others.
struct AttentionBenchCase {
  FlashAttention::Shape shape;
  uint32_t before = 0;
  uint32_t rows = 0;

  uint32_t context() const { return before + rows; }
};

class AttentionBenchInputs {
 public:
  static Result<AttentionBenchInputs> make(OpBed& bed, const AttentionBenchCase& test,
                                           const BenchScale& scale);

  size_t n_copies() const { return kv_.size(); }
  /// What every way to compute it takes, on one copy of KV.
  struct Call {
    vk::BufferRange q;          ///< float [rows][q_stride]
    vk::BufferRange positions;  ///< uint32 [rows]
    vk::BufferRange block_table;
    vk::BufferRange kv;
    uint32_t q_stride = 0;
    uint32_t table_stride = 0;
    float scale = 0;
  };
  Call call(size_t copy) const;

  /// All columns of a few (row, head) pairs, of KV's first copy. `math`: how it is computed.
  Expectation expect(Math math) const;
  uint64_t y_bytes() const;

 private:
  AttentionBenchInputs(const AttentionBenchCase& test, PagedKvCase paged)
      : test_(test), paged_(std::move(paged)) {}

  void append_row(PagedKvCase::Row row, std::vector<float>& values) const;

  AttentionBenchCase test_;
  PagedKvCase paged_;
  std::vector<std::byte> kv_pattern_;  ///< blocks that KV memory repeats
  std::vector<float> q_values_;
  Call common_;
  std::vector<vk::BufferRange> kv_;
  std::vector<vk::BufferRange> block_tables_;
};

/// FlashAttention on such inputs, with what memory it needs besides.
class FlashAttentionRun {
 public:
  using Allocate = std::function<Result<vk::BufferRange>(uint64_t size_bytes)>;

  /// `allocate` gives scratch memory.
  static Result<FlashAttentionRun> make(OpBed& bed, const AttentionBenchCase& test,
                                        const AttentionBenchInputs& inputs,
                                        const FlashAttention& op, const vk::BufferRange& y,
                                        const Allocate& allocate);

  void record(vk::Recorder& recorder, const AttentionBenchInputs::Call& call) const;

 private:
  explicit FlashAttentionRun(const FlashAttention& op) : op_(op) {}

  FlashAttention op_;
  bool tiles_ = false;
  FlashAttention::Args args_;
  FlashAttention::ReduceArgs reduce_;
};

}  // namespace pumice::ops
