// Calls on a device: what a decoder records. Binding declares a call's pipelines and takes its
// weights; recording writes its commands for the rows of one step.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "models/calls/call.hpp"
#include "models/decoder_buffers.hpp"
#include "models/latent_expansion.hpp"
#include "models/lowering.hpp"
#include "models/state_layout.hpp"
#include "models/step_args.hpp"
#include "models/weights.hpp"
#include "shaders/expert_gemm/expert_gemm.hpp"
#include "shaders/flash_attention/flash_attention.hpp"
#include "shaders/linear/linear.hpp"
#include "vk/recorder.hpp"

namespace pumice {

/// What sequences keep in device memory.
struct SequenceMemory {
  vk::BufferRange sampled;                        ///< see ops::Embedding::Args
  std::span<const vk::BufferRange> block_tables;  ///< by kind of the state's layout
  uint32_t table_stride = 0;
  vk::BufferRange kv;  ///< stands for all of the KV memory, states of recurrences included
};

/// What the calls of a decoder have in common.
struct SharedByCalls : DecoderBuffers {
  explicit SharedByCalls(std::shared_ptr<const Lowered> of_plan)
      : owner(std::move(of_plan)), lowered(*owner) {}

  const std::shared_ptr<const Lowered> owner;  ///< of the next
  const Lowered& lowered;
  StateLayout state;
  /// A row's results do not depend on its batch, to the last bit.
  bool invariant = false;
  /// Up to how many rows of a step it does not either: Decoder::alike_rows.
  uint32_t alike_rows = 0;
  Routing routing = Routing::kChosen;

  ops::Linear linear;
  /// By attention class, but for those that expand: these are others by the same number.
  std::map<uint32_t, ops::FlashAttention> attention;
  std::map<uint32_t, LatentExpansion> expansions;  ///< some may be none's
  std::optional<ops::ExpertGemm> expert_gemm;      ///< of many rows, unless invariant

  std::vector<vk::BufferRange> buffers;  ///< by BufferId: activations and routes
  std::vector<vk::BufferRange> vectors;  ///< by VectorId
};

/// What a call is bound with, and where it says what it wants of what is shared: that is made after
/// all calls have been bound.
class Binder {
 public:
  Binder(vk::PipelineLibrary& pipelines_in, const Program& program_in,
         const SharedByCalls& shared_in, const ModelWeights& weights_in, KvTypes kv_type_in)
      : pipelines(pipelines_in),
        program(program_in),
        shared(shared_in),
        weights(weights_in),
        kv_type(kv_type_in) {}

  vk::PipelineLibrary& pipelines;
  const Program& program;
  const SharedByCalls& shared;  ///< its ops and memory are not there yet
  const ModelWeights& weights;
  const KvTypes kv_type;

  /// It records products with SharedByCalls::linear.
  void multiplies(const WeightType& type) { product_types.insert(&type); }
  /// It records products with SharedByCalls::expert_gemm.
  void multiplies_experts(const WeightType& type, uint32_t n_used, uint32_t n_experts) {
    expert_types.push_back(&type);
    expert_numbers.insert({n_used, n_experts});
  }
  /// It records SharedByCalls::expansions of a class, with heads' keys apart in such a matrix.
  void expands(uint32_t attention_class, const WeightType& keys) {
    expanded_keys[attention_class].push_back(&keys);
  }

  std::set<const WeightType*> product_types;
  std::vector<const WeightType*> expert_types;
  std::set<std::pair<uint32_t, uint32_t>> expert_numbers;  ///< used, of so many
  uint32_t alike_rows = UINT32_MAX;  ///< SharedByCalls::alike_rows, as far as calls have it alone
  std::map<uint32_t, std::vector<const WeightType*>> expanded_keys;
};

/// The rows of a step that a call computes, and where everything lies.
struct StepContext {
  static constexpr uint64_t kFloatBytes = sizeof(float);

  vk::Recorder& recorder;
  const StepArgs& step;
  const SequenceMemory& memory;
  const SharedByCalls& shared;
  uint32_t n_rows = 0;
  vk::BufferRange planes = {};  ///< where a call that makes_planes is to write them
  bool x_is_made = false;       ///< the call before has written what this one reads_planes of

  /// From a view's first column on.
  vk::BufferRange at(const View& view) const {
    return shared.buffers[view.buffer].from(kFloatBytes * view.first);
  }
  vk::BufferRange at(const std::optional<View>& view) const {
    return view ? at(*view) : vk::BufferRange{};
  }
  uint32_t stride(const View& view) const { return shared.lowered.buffers[view.buffer].width; }
  vk::BufferRange vector(VectorId id) const { return shared.vectors[id]; }
  vk::BufferRange vector(std::optional<VectorId> id) const {
    return id ? vector(*id) : vk::BufferRange{};
  }
  vk::BufferRange row_index(bool gathers) const {
    return gathers ? step.logit_rows : vk::BufferRange{};
  }
  StateLayout::Place place(const StateSlot& slot) const { return shared.state.place(slot); }
};

/// The first `n` numbers of rows of a view.
struct RowsOfView {
  View view;
  uint32_t n = 0;
  bool operator==(const RowsOfView&) const = default;
};

class BoundCall {
 public:
  BoundCall() = default;
  BoundCall(const BoundCall&) = delete;
  BoundCall& operator=(const BoundCall&) = delete;
  virtual ~BoundCall() = default;

  /// The same weights as when it was bound lie elsewhere from now on.
  virtual void use_weights(const Lowered&, const ModelWeights&) {}
  /// Of SharedByCalls::linear_scratch, for so many rows.
  virtual uint64_t scratch_bytes(const SharedByCalls&, uint32_t /*n_rows*/) const { return 0; }
  /// What products of so many rows read as PlanesOfX at the start of linear_scratch.
  virtual std::optional<RowsOfView> reads_planes(const SharedByCalls&, uint32_t /*n_rows*/) const {
    return {};
  }
  /// What it makes and can write as PlanesOfX too.
  virtual std::optional<RowsOfView> makes_planes(const SharedByCalls&) const { return {}; }
  /// Whether it computes, for so many rows, what the dispatch does that it may cover
  /// (Dispatch::covered_by).
  virtual bool covers(const SharedByCalls&, uint32_t /*n_rows*/) const { return false; }
  /// Cannot fail. `step.n_rows` is not 0.
  virtual void record(const StepContext& step) const = 0;
};

/// A call that only records: `record(step)`, which holds the call's data and its op.
template <typename Record>
class RecordedCall final : public BoundCall {
 public:
  explicit RecordedCall(Record record) : record_(std::move(record)) {}
  void record(const StepContext& step) const override { record_(step); }

 private:
  const Record record_;
};

template <typename Record>
std::unique_ptr<BoundCall> make_recorded(Record record) {
  return std::make_unique<RecordedCall<Record>>(std::move(record));
}

/// A call with weights, and the op that it records.
template <typename Data, typename Op>
class CallOfOp : public BoundCall {
 public:
  CallOfOp(Data data, Op bound) : c(std::move(data)), op(std::move(bound)) {}

 protected:
  const Data c;
  const Op op;
};

/// Declares pipelines of any call; see `bind` of each.
inline BindResult bind_call(const Call& call, Binder& binder) {
  return std::visit([&](const auto& c) { return bind(c, binder); }, call);
}

template <typename Bound, typename... Args>
std::unique_ptr<BoundCall> make_bound(Args&&... args) {
  return std::make_unique<Bound>(std::forward<Args>(args)...);
}

}  // namespace pumice
