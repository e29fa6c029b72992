// Pages with states of sequences on the host, for the cases of ops that go on from one: in no
// order, each with something before and after what the op may touch.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "shaders/common/state_item.h"
#include "shaders/op_case.hpp"

namespace pumice::ops {

class StateCase {
 public:
  struct Sequence {
    uint32_t n_rows;
    bool begins;  ///< from zero: what its page holds does not count
  };
  struct Memory {
    vk::BufferRange pages;
    vk::BufferRange pristine;
    vk::BufferRange items;
    vk::BufferRange row_item;
  };

  /// `n_floats`: of a state.
  StateCase(std::vector<Sequence> sequences, uint32_t n_floats, uint32_t seed)
      : sequences_(std::move(sequences)),
        n_floats_(n_floats),
        values_(OpBed::normal_floats(size_t{n_pages()} * page_floats(), seed)) {
    for (uint32_t seq = 0; seq < n_sequences(); ++seq) {
      if (!sequences_[seq].begins) continue;
      float* const state = &values_[before_index(seq)];
      std::fill(state, state + n_floats_, std::bit_cast<float>(kPoison));
    }
  }

  uint32_t n_sequences() const { return static_cast<uint32_t>(sequences_.size()); }
  uint32_t n_rows() const { return first_row(n_sequences()); }
  uint32_t first_row(uint32_t seq) const {
    uint32_t row = 0;
    for (uint32_t i = 0; i < seq; ++i) row += sequences_[i].n_rows;
    return row;
  }
  uint32_t most_rows() const {  ///< of one sequence
    return std::ranges::max(sequences_, {}, &Sequence::n_rows).n_rows;
  }
  static uint32_t offset_bytes() { return kPadding * 4; }
  const float* before(uint32_t seq) const { return &values_[before_index(seq)]; }
  /// Of the state that the op writes, among all floats of the pages.
  size_t after_index(uint32_t seq) const { return index(2 * (n_sequences() - seq) - 2); }

  Result<Memory> memory(OpBed& bed) const {
    Memory memory;
    PUMICE_TRY(memory.pristine, bed.input(values_));
    PUMICE_TRY(memory.pages, bed.output(values_.size() * 4));
    std::vector<StateItem> items;
    std::vector<uint32_t> row_item;
    for (uint32_t seq = 0; seq < n_sequences(); ++seq) {
      const auto page = [&](size_t first) {
        return memory.pages.address() + (first - kPadding) * 4;
      };
      items.push_back({.before = page(before_index(seq)),
                       .after = page(after_index(seq)),
                       .first_row = first_row(seq),
                       .n_rows = sequences_[seq].n_rows,
                       .begins = sequences_[seq].begins ? 1u : 0u});
      row_item.insert(row_item.end(), sequences_[seq].n_rows, seq);
    }
    PUMICE_TRY(memory.items, bed.input(items));
    PUMICE_TRY(memory.row_item, bed.input(row_item));
    return memory;
  }
  void restore(vk::Recorder& recorder, const Memory& memory) const {
    recorder.copy(memory.pristine, memory.pages);
  }

  /// All pages as they were; states that do not count are not written.
  Expectation expectation(const Memory& memory) const {
    Expectation expected{.name = "states", .output = memory.pages};
    expected.reference.assign(values_.begin(), values_.end());
    expected.bound.assign(values_.size(), 0);
    return expected;
  }

  /// "rows=7,1+,2+": those with a plus go on from a state.
  static std::string name(const std::vector<Sequence>& sequences) {
    std::string text;
    for (const Sequence& sequence : sequences) {
      text += fmt::format("{}{}{}", text.empty() ? "rows=" : ",", sequence.n_rows,
                          sequence.begins ? "" : "+");
    }
    return text;
  }

 private:
  static constexpr uint32_t kPadding = 64;
  static constexpr uint32_t kPoison = 0xFFFFFFFFu;  // a NaN, and what OpBed::output is filled with

  uint32_t n_pages() const { return 2 * n_sequences(); }
  size_t page_floats() const { return size_t{n_floats_} + 2 * kPadding; }
  size_t index(uint32_t page) const { return page * page_floats() + kPadding; }
  size_t before_index(uint32_t seq) const { return index(2 * seq + 1); }

  std::vector<Sequence> sequences_;
  uint32_t n_floats_;
  std::vector<float> values_;
};

}  // namespace pumice::ops
