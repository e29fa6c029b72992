// One dispatch over rows as several, each of some rows, where the whole would not fit a segment:
// the same work by the same workgroups, so the same bits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "vk/pipeline.hpp"
#include "vk/recorder.hpp"

namespace pumice::ops {

/// The most of `rows` that `limit` holds, at least one; `cost_of(n)` is what n of them cost, no
/// less than what fewer do.
template <typename CostOf>
uint32_t rows_within(const vk::SegmentLimit& limit, uint32_t rows, const CostOf& cost_of) {
  if (rows <= 1 || limit.holds(cost_of(rows))) return rows;
  uint32_t held = 1, not_held = rows;
  while (not_held - held > 1) {
    const uint32_t middle = held + (not_held - held) / 2;
    (limit.holds(cost_of(middle)) ? held : not_held) = middle;
  }
  return held;
}

/// Neighbours among rows, or whatever else is shared out.
struct Share {
  uint32_t first = 0;
  uint32_t n = 0;
};

/// `n` of them in shares of at most `most` and of what a dispatch has workgroups for, about equally
/// many each.
class Shares {
 public:
  Shares(uint32_t n, uint32_t most)
      : n_(n), size_(n == 0 ? 0 : (n - 1) / std::min(most, vk::Grid::kMost) + 1) {}
  uint32_t size() const { return size_; }
  Share operator[](uint32_t i) const {
    const auto first = static_cast<uint32_t>(uint64_t{n_} * i / size_);
    return {first, static_cast<uint32_t>(uint64_t{n_} * (i + 1) / size_) - first};
  }

 private:
  uint32_t n_;
  uint32_t size_;
};

/// Dispatches over `rows` rows of `columns` parts each, as few as the recorder's segments hold:
/// shares of whole rows, or where one row is too much, of one row's parts. `move(push, rows,
/// columns)` makes `push`, a copy of the one given, that of those Shares, and returns their grid;
/// `cost_of(n_rows, n_columns)` is as `rows_within` wants it. The first dispatch declares the
/// accesses of all, so no barrier comes between them: what one writes no other may read or write.
template <typename Push, typename CostOf, typename Move>
void dispatch_parts(vk::Recorder& recorder, const vk::Pipeline& pipeline, const Push& push,
                    uint32_t rows, uint32_t columns, std::initializer_list<vk::Access> accesses,
                    const CostOf& cost_of, const Move& move) {
  const vk::SegmentLimit& limit = recorder.segment_limit();
  const uint32_t most_rows =
      rows_within(limit, rows, [&](uint32_t n) { return cost_of(n, columns); });
  const uint32_t most_columns =
      most_rows > 1 ? columns
                    : rows_within(limit, columns, [&](uint32_t n) { return cost_of(1, n); });
  const Shares row_shares(rows, most_rows);
  const Shares column_shares(columns, most_columns);
  for (uint32_t r = 0; r < row_shares.size(); ++r) {
    for (uint32_t c = 0; c < column_shares.size(); ++c) {
      Push moved = push;
      const vk::Grid grid = move(moved, row_shares[r], column_shares[c]);
      const std::initializer_list<vk::Access> none;
      recorder.dispatch(pipeline, moved, grid, r == 0 && c == 0 ? accesses : none,
                        cost_of(row_shares[r].n, column_shares[c].n));
    }
  }
}

/// The same of rows that are cheap: `move(push, first, n)` and `cost_of(n)` are of whole rows.
template <typename Push, typename CostOf, typename Move>
void dispatch_rows(vk::Recorder& recorder, const vk::Pipeline& pipeline, const Push& push,
                   uint32_t rows, std::initializer_list<vk::Access> accesses, const CostOf& cost_of,
                   const Move& move) {
  dispatch_parts(
      recorder, pipeline, push, rows, 1, accesses, [&](uint32_t n, uint32_t) { return cost_of(n); },
      [&](Push& moved, Share share, Share) { return move(moved, share.first, share.n); });
}

/// Makes a norm's push constants those of the rows from `first` on. Rows that an index picks may be
/// any, so then only the index moves.
template <typename Push>
void move_norm(Push& push, uint64_t first) {
  if (push.gather != 0) {
    push.row_index += first * 4;
  } else {
    push.x += first * push.x_stride * 4;
    push.residual += first * push.x_stride * 4;
  }
  push.y += first * push.y_stride * 4;
}

}  // namespace pumice::ops
