// What lower() does, an operation of a program after the other: in lowering.cpp, and for operations
// that have states in lowering_states.cpp.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/fusion_patterns.hpp"
#include "models/lowering.hpp"

namespace pumice {

/// Rows that matrices read are read so many floats at once.
inline constexpr uint32_t kVectorFloats = 4;

class Lowering {
 public:
  Lowering(const Program& program, const FusionRules& rules, FusionPatterns patterns);

  Result<Lowered> run();

 private:
  using Bundle = FusionPatterns::Bundle;
  using Heads = FusionPatterns::Heads;
  /// Where a bundle's products are.
  struct Place {
    GroupId group = 0;
    std::optional<VectorId> bias = {};    ///< of all of them, one after the other
    std::optional<BufferId> buffer = {};  ///< once the first of them has been lowered
  };

  void fail(const std::string& reason);

  uint32_t width(ValueId value) const { return program_.values[value].width; }
  /// Whether no operation after the present one reads it.
  bool dies_here(ValueId value) const;
  RowSet row_set() const { return op_ >= end_of_layers_ ? RowSet::kLogits : RowSet::kAll; }
  RowSet rows_of(const View& view) const { return lowered_.buffers[view.buffer].rows; }
  /// Whether its view is all of a buffer.
  bool is_whole(ValueId value) const;

  BufferId add_buffer(uint32_t buffer_width, RowSet rows);
  View new_view(uint32_t buffer_width) { return {add_buffer(buffer_width, row_set()), 0}; }
  VectorId vector_of(std::vector<TensorId> tensors);
  GroupId group_of(std::vector<MatrixRows> matrices);
  MatrixRows all_rows(TensorId tensor) const;
  /// "attn_q" of "blk.3.attn_q.weight".
  std::string stem_of(TensorId tensor) const;
  /// `part`: unless it is that of the operation being lowered.
  void emit(Call call, std::string label, std::optional<Part> part = {});

  /// Where an operand is, at the rows that are computed now.
  View at_rows(ValueId value, const std::string& label);
  /// The same in a buffer of its own.
  View whole(ValueId value, const std::string& label);
  void copy(View from, View to, uint32_t n, const std::string& label);
  /// For elementwise operations on a value: in place where it is read for the last time.
  View place_of_result(ValueId operand);

  // ---- operations, in their order

  void lower(const op::Embed& o) { embed(o.table, false); }
  void lower(const op::EmbedPosition& o) { embed(o.table, true); }

  void embed(TensorId table, bool by_position);

  void lower(const op::AddRow& o);
  void lower(const op::GivenRows&);
  void lower(const op::Linear& o);
  void lower_bundled(const op::Linear& o, const Bundle& bundle, Place& place);

  VectorPart bias_of(const op::Linear& o) { return {vector_of({*o.bias}), o.weight.first_row}; }

  /// What adapters add to a product.
  void adapt(const op::Linear& o, View x, View y);
  void add_bias(VectorPart bias, View y, uint32_t n, const std::string& label);

  /// Whether what reads a value only scales or caps it on its way to the logits.
  bool leads_to_logits(ValueId value) const;

  void lower(const op::RmsNorm& o);
  void lower(const op::LayerNorm& o);

  /// What a norm reads, a sum that it computes first, and where its result goes.
  struct NormPlaces {
    View x;
    std::optional<View> residual;
    View y;
  };
  NormPlaces place_norm(ValueId x, uint32_t group);

  /// The product of the last dispatch, if that is one of all its matrices and writes all of such a
  /// buffer; else null. Its number is `last_dispatch`.
  call::Linear* product_into(const View& y);
  uint32_t last_dispatch() const { return static_cast<uint32_t>(lowered_.dispatches.size() - 1); }
  /// Of few rows products may do the norm: the one before it adds up and leaves squares, those
  /// behind it scale. Returns the one before it.
  std::optional<uint32_t> share_norm(const op::RmsNorm& o, const NormPlaces& at);
  bool is_adapted(const op::Linear& o) const;
  std::optional<call::Linear::Scale> scale_of(ValueId x) const;

  void lower(const op::Rope& o);
  void lower(const op::HeadLinear& o);

  const op::Attention& attention_of(const FusionPatterns::Latents& latents) const;

  /// The same rows the other way: from what the product of keys has read to what that of values
  /// writes.
  void expand(const FusionPatterns::Latents& latents, GroupId values, View y);
  void lower(const op::Append&) { fail("there is no kernel for a state outside of attention"); }

  void lower(const op::Attention& o);

  /// Keys alone go to the state.
  void append_latent(const op::Attention& o, const Heads& heads);

  /// k and v go to the state; returns where q is.
  View append(const op::Attention& o, const Heads& heads);

  void lower(const op::CausalConv& o);
  void lower(const op::Recurrence& o);

  uint32_t class_of(const op::Attention& o);
  uint32_t class_of(const AttentionClass& wanted);

  void lower(const op::Mul& o);
  void lower(const op::Add& o);

  /// Whether it is a norm of whole rows, which can compute a sum first.
  bool norms_rows(size_t index) const;

  void binary(ops::Elementwise::Kind kind, ValueId a, ValueId b, const std::string& label,
              uint32_t b_group = 1);

  /// Of one value, number by number: what has a `call_of` in calls/.
  template <typename OnOneValue>
  requires requires(const OnOneValue& o, const OneValue& at) { call_of(o, at); }
  void lower(const OnOneValue& o) {
    const std::string label = label_of_one(o);
    const View x = at_rows(o.x, label);
    const View y = place_of_result(o.x);
    views_[result_] = y;
    emit(call_of(o, {x, y, width(result_)}), label);
  }
  std::string label_of_one(const Operation& o) const;

  void lower(const op::Split& o);
  void lower(const op::Concat& o);
  void lower(const op::SplitGroups& o);
  void lower(const op::Route& o);
  void lower(const op::ExpertLinear& o);
  void lower(const op::Combine& o);

  void find_uses();

  const Program& program_;
  const FusionRules rules_;
  FusionPatterns patterns_;
  std::vector<Place> places_;  // of its bundles
  std::vector<Part> parts_;    // by operation
  std::map<size_t, uint32_t> layer_of_;
  size_t end_of_layers_ = 0;  // and of what else is computed of every row

  size_t op_ = 0;  // being lowered
  ValueId result_ = 0;
  std::vector<std::optional<View>> views_;  // of values
  std::map<ValueId, View> groups_;          // of routes
  /// What the last product of queries, on their way to a latent's space, has read.
  struct Queries {
    View x;
    GroupId matrices;
  };
  std::optional<Queries> queries_;
  std::map<ValueId, ValueId> sums_;  // a sum that is not computed yet, and what is to be added
  std::map<ValueId, call::Linear::Scale> scales_;  // of norms that products share
  std::optional<Error> error_;
  Lowered lowered_;
};

}  // namespace pumice
