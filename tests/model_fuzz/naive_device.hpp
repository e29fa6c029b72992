// A device that keeps at each position of each block what KV is there: a number that depends on
// salt and tokens up to that position. A row looks at all positions before its own, as attention
// does, so a block that was shared, copied or given away wrongly is seen by whoever reads it.
#pragma once

#include <map>
#include <span>
#include <stdexcept>

#include "scheduler/scheduler.hpp"
#include "tests/model_fuzz/naive_cache.hpp"

namespace pumice::model_fuzz {

/// The product and the reference, or the product and its contract, disagree.
struct Divergence : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline uint64_t chained(uint64_t value, uint32_t token) {
  value = (value ^ (token + 1)) * 0x9e3779b97f4a7c15u;
  return value ^ (value >> 29);
}
inline uint64_t first_value(const std::string& salt) {
  uint64_t value = 77;
  for (const char c : salt) value = chained(value, static_cast<unsigned char>(c));
  return value;
}
/// The "model": a prefix has one next token.
inline uint32_t token_after(uint64_t value) { return static_cast<uint32_t>((value >> 7) % 3); }
inline uint32_t token_after(const Tokens& tokens, const std::string& salt) {
  uint64_t value = first_value(salt);
  for (const uint32_t token : tokens) value = chained(value, token);
  return token_after(value);
}

class NaiveDevice {
 public:
  explicit NaiveDevice(uint32_t block_tokens) : block_tokens_(block_tokens) {}

  /// A chunk as it is submitted: the block table of that moment and the tokens known by then.
  struct Row {
    StepChunk chunk;
    std::vector<BlockId> blocks;
    Tokens tokens;
    std::string salt;
  };

  void copy(const BlockCopy& copy) {
    const std::vector<uint64_t> source = block(copy.source);
    std::copy_n(source.begin(), copy.n_tokens, block(copy.target).begin());
  }

  /// Computes a chunk; gives the next token if it samples.
  uint32_t run(const Row& row) {
    const size_t end = size_t{row.chunk.first_position} + row.chunk.n_tokens;
    if (row.blocks.size() * block_tokens_ < end) throw Divergence("a row without a block");
    uint64_t value = first_value(row.salt);
    for (size_t p = 0; p < end; ++p) {
      value = chained(value, p < row.tokens.size() ? row.tokens[p] : fed_back(row, p));
      uint64_t& held = block(row.blocks[p / block_tokens_])[p % block_tokens_];
      if (p >= row.chunk.first_position) {
        held = value;
      } else if (held != value) {
        throw Divergence("request " + std::to_string(row.chunk.request) +
                         " reads wrong content at " + std::to_string(p));
      }
    }
    if (!row.chunk.samples) return 0;
    sampled_[{row.chunk.request, end}] = token_after(value);
    return token_after(value);
  }

 private:
  /// The token that the step before has sampled, which only the device knows.
  uint32_t fed_back(const Row& row, size_t position) const {
    const auto it = sampled_.find({row.chunk.request, position});
    if (it == sampled_.end()) {
      throw Divergence("request " + std::to_string(row.chunk.request) +
                       " computes a token that nobody knows");
    }
    return it->second;
  }
  std::vector<uint64_t>& block(BlockId id) {
    std::vector<uint64_t>& values = blocks_[id];
    values.resize(block_tokens_);
    return values;
  }

  uint32_t block_tokens_;
  std::map<BlockId, std::vector<uint64_t>> blocks_;
  std::map<std::pair<RequestId, size_t>, uint32_t> sampled_;  // by position
};

}  // namespace pumice::model_fuzz
