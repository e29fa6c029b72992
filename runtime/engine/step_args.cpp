#include "engine/step_args.hpp"

namespace pumice {

Result<StepArgs> StepArgs::create(const std::shared_ptr<vk::Device>& device,
                                  const StepCapacity& capacity) {
  // Attention gives a workgroup to each item.
  if (const uint32_t most = device->plan().max_workgroup_count[0];
      capacity.attention_items > most) {
    return make_error(ErrorCode::kDoesNotFit,
                      "the longest context and batch are {} pieces of attention, and this device "
                      "dispatches {}; lower the context (-c) or the batch size (-b)",
                      capacity.attention_items, most);
  }
  const uint64_t rows = capacity.rows;
  const uint64_t logit_rows = capacity.logit_rows;
  const uint64_t items = capacity.attention_items;
  constexpr uint64_t kGridBytes = sizeof(ops::FlashAttention::GridWords);
  constexpr uint64_t kAlignment = 256;
  const uint64_t class_bytes =
      items * (2 * sizeof(ops::AttentionItem) + sizeof(ops::AttentionReduceItem)) + 3 * kGridBytes +
      6 * kAlignment;
  const uint64_t expected = 3 * rows * 4 + logit_rows * (4 + sizeof(ops::SamplingRow)) +
                            capacity.attention_classes * class_bytes + 6 * kAlignment;
  StepArgs args(vk::Arena(device, vk::MemoryDomain::kUpload, "step arguments", expected));
  args.attention.resize(capacity.attention_classes);
  struct Array {
    vk::BufferRange* range;
    uint64_t bytes;
  };
  std::vector<Array> arrays = {
      {&args.tokens, rows * 4},
      {&args.positions, rows * 4},
      {&args.row_seq, rows * 4},
      {&args.logit_rows, logit_rows * 4},
      {&args.sampling, logit_rows * sizeof(ops::SamplingRow)},
  };
  for (Attention& attention : args.attention) {
    const Array lists[] = {
        {&attention.tile_items, items * sizeof(ops::AttentionItem)},
        {&attention.row_items, items * sizeof(ops::AttentionItem)},
        {&attention.reduce_items, items * sizeof(ops::AttentionReduceItem)},
        {&attention.tile_grid, kGridBytes},
        {&attention.row_grid, kGridBytes},
        {&attention.reduce_grid, kGridBytes},
    };
    arrays.insert(arrays.end(), std::begin(lists), std::end(lists));
  }
  for (const Array& array : arrays) {
    PUMICE_TRY(*array.range, args.arena_.allocate(array.bytes));
  }
  return args;
}

}  // namespace pumice
