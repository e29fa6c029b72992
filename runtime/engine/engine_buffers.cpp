#include "engine/engine_buffers.hpp"

#include <algorithm>
#include <utility>

#include "engine/engine_limits.hpp"
#include "shaders/log_probs/log_probs.hpp"
#include "shaders/sampling/sampling.hpp"

namespace pumice {
namespace {

constexpr uint64_t kTransferBytes = uint64_t{64} << 20;  // at a time between tiers
// To a prefix store: no more than the host copies within a millisecond or two.
constexpr uint64_t kStoreBytes = uint64_t{4} << 20;

}  // namespace

std::vector<vk::ArenaLayout> EngineBuffers::lay_out(const EngineSizes& sizes,
                                                    const EngineOptions& options,
                                                    uint32_t n_vocab) {
  using Domain = vk::MemoryDomain;
  const bool greedy_only = options.greedy_only;
  const uint64_t n_rows = sizes.limits.logit_rows;
  const uint64_t n_slots = sizes.n_slots;
  const uint64_t sampled_bytes = n_rows * sizeof(uint32_t);
  const uint64_t vocab_bytes = uint64_t{n_vocab} * sizeof(float);  // and of counts
  const uint64_t log_probs_bytes = n_rows * kLogProbsStride * sizeof(ops::LogProbs::Entry);

  vk::ArenaLayout sampling(Domain::kDevice, "sampling");
  sampling.add(greedy_only ? sizeof(uint32_t) : n_slots * vocab_bytes, token_counts);
  sampling.add(n_rows * vocab_bytes, sampling_scratch);
  sampling.add(sizes.n_rings * sampled_bytes, sampled);
  if (!greedy_only) sampling.add(log_probs_bytes, log_probs);

  vk::ArenaLayout tables(Domain::kUpload, "block tables");
  tables.add(sizes.kinds.size(), n_slots * sizes.table_stride * sizeof(uint64_t), block_tables);
  const uint64_t mask_bytes = uint64_t{mask_words(n_vocab)} * sizeof(uint32_t);
  tables.add(n_slots * kLogitBiasBytes + (greedy_only ? 0 : sizes.n_rings * n_rows * mask_bytes),
             sampling_tables);

  vk::ArenaLayout counts(Domain::kUpload, "token counts");
  if (!greedy_only) counts.add(n_slots, vocab_bytes, staged_counts);

  vk::ArenaLayout transfers(Domain::kReadback, "cache transfers");
  if (options.cache_host_bytes > 0 || !options.cache_file.empty()) {
    const uint64_t most = std::max<uint64_t>(1, kTransferBytes / sizes.layout.page_bytes);
    transfers.add(std::min<uint64_t>(most, sizes.n_pages), sizes.layout.page_bytes, staged_pages);
  }

  if (!options.prefix_store.empty()) {
    const uint64_t most = std::max<uint64_t>(1, kStoreBytes / sizes.layout.page_bytes);
    transfers.add(std::min<uint64_t>(most, sizes.n_pages), sizes.layout.page_bytes, stored_pages);
  }

  vk::ArenaLayout readback(Domain::kReadback, "readback");
  std::vector<vk::ArenaLayout> all;
  rings.resize(sizes.n_rings);
  for (Ring& ring : rings) {
    all.push_back(ring.args.lay_out(sizes.step));
    tables.add(n_rows * sizeof(ops::SamplingRow), ring.sampling);
    readback.add(sampled_bytes, ring.sampled_readback);
    if (!greedy_only) {
      tables.add(n_rows * sizeof(ops::LogProbsRow), ring.log_prob_rows);
      readback.add(log_probs_bytes, ring.log_probs_readback);
    }
    if (options.prompt_logits) readback.add(n_rows * vocab_bytes, ring.logits_readback);
    const uint64_t row_floats = uint64_t{sizes.limits.rows} * sizeof(float);
    if (sizes.given_width != 0) tables.add(row_floats * sizes.given_width, ring.given);
    if (sizes.hidden_width != 0)
      readback.add(row_floats * sizes.hidden_width, ring.hidden_readback);
  }
  for (vk::ArenaLayout* const arena : {&sampling, &tables, &readback, &transfers, &counts}) {
    all.push_back(std::move(*arena));
  }
  return all;
}

}  // namespace pumice
