#include "models/activation_plan.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include "models/alignment.hpp"

namespace pumice {
ActivationPlan plan_activations(const Lowered& lowered, uint64_t rows, uint64_t logit_rows) {
  const auto bytes_of = [&](const Buffer& buffer) {
    return aligned(sizeof(float) * buffer.width *
                   (buffer.rows == RowSet::kAll ? rows : logit_rows));
  };
  std::vector<BufferId> order(lowered.buffers.size());
  for (BufferId id = 0; id < order.size(); ++id) order[id] = id;
  std::ranges::stable_sort(order, std::greater(),
                           [&](BufferId id) { return bytes_of(lowered.buffers[id]); });
  ActivationPlan plan{.offsets = std::vector<uint64_t>(order.size(), 0)};
  std::vector<BufferId> placed;
  for (const BufferId id : order) {
    const Buffer& buffer = lowered.buffers[id];
    // Taken places of buffers that are in use meanwhile, by rising offset.
    std::vector<std::pair<uint64_t, uint64_t>> taken;
    for (const BufferId other : placed) {
      const Buffer& b = lowered.buffers[other];
      if (b.first_use <= buffer.last_use && buffer.first_use <= b.last_use) {
        taken.emplace_back(plan.offsets[other], plan.offsets[other] + bytes_of(b));
      }
    }
    std::ranges::sort(taken);
    uint64_t offset = 0;
    for (const auto& [begin, end] : taken) {
      if (offset + bytes_of(buffer) <= begin) break;
      offset = std::max(offset, end);
    }
    plan.offsets[id] = offset;
    plan.bytes = std::max(plan.bytes, offset + bytes_of(buffer));
    placed.push_back(id);
  }
  return plan;
}

}  // namespace pumice
