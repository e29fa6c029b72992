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

/// Dispatches over `rows` rows, about equally many each, as few as the recorder's segments hold.
/// `move(push, first, n)` makes `push`, a copy of the one given, that of the n rows from `first`
/// on, and returns their grid. The first dispatch declares the accesses of all, so no barrier comes
/// between them: what one writes no other may read or write.
template <typename Push, typename CostOf, typename Move>
void dispatch_rows(vk::Recorder& recorder, const vk::Pipeline& pipeline, const Push& push,
                   uint32_t rows, std::initializer_list<vk::Access> accesses, const CostOf& cost_of,
                   const Move& move) {
  if (rows == 0) return;
  const uint32_t most = rows_within(recorder.segment_limit(), rows, cost_of);
  const uint32_t n_shares = (rows - 1) / most + 1;
  for (uint32_t i = 0; i < n_shares; ++i) {
    const auto first = static_cast<uint32_t>(uint64_t{rows} * i / n_shares);
    const uint32_t n = static_cast<uint32_t>(uint64_t{rows} * (i + 1) / n_shares) - first;
    Push moved = push;
    const vk::Grid grid = move(moved, first, n);
    const std::initializer_list<vk::Access> none;
    recorder.dispatch(pipeline, moved, grid, i == 0 ? accesses : none, cost_of(n));
  }
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
