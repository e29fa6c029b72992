// How the operations of a program relate: which makes a value and which read it, which
// products read one value and are wanted side by side, and which operations another's dispatch
// computes. Found before anything is lowered (lowering.cpp).
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/result.hpp"
#include "models/fusion_rules.hpp"
#include "models/program.hpp"

namespace pumice {

/// Of an architecture that is understood and cannot be run (kBadFile).
Error cannot_be_lowered(const Program& program, const std::string& reason);

/// Operations by number, as in Program::ops.
class FusionPatterns {
 public:
  /// Products of one value that write side by side.
  struct Bundle {
    std::string label;            ///< "qkv", "gate_up"
    std::vector<size_t> linears;  ///< in the order of their columns
    std::vector<MatrixRows> matrices;
    std::vector<TensorId> biases;  ///< of all of them, one after the other; empty: not so
    bool bias_is_fused = false;    ///< rope_kv adds them
  };
  /// What attention reads, traced back to the products.
  struct Heads {
    bool appends = false;          ///< it is the first to read its keys and values
    std::optional<size_t> bundle;  ///< of q, k and v, if they are products of one value
    const op::Append* append = nullptr;
    const op::Rope* rope = nullptr;  ///< of q and k, that rope_kv computes
    // What rope_kv is given: before its own norms.
    ValueId q = 0;
    ValueId k = 0;
    ValueId v = 0;
    const op::RmsNorm* q_norm = nullptr;  ///< that rope_kv computes
    const op::RmsNorm* k_norm = nullptr;
  };
  /// A product whose one factor is an activation.
  struct Gate {
    size_t bundle;  ///< of the activation's operand and the other factor
    ActivationKind kind;
  };

  /// Attention to latents between products of heads: of queries, which take them to the latents'
  /// space, and of results, which take them out of it.
  struct Latents {
    size_t keys;  ///< the product of queries
    size_t attention;
    size_t values;     ///< the product of results
    bool fused;        ///< one matrix, each head's rows of keys and then those of values
    uint32_t n_still;  ///< of a head's numbers, that are multiplied; the others follow
    uint32_t n_turned;
    uint32_t value_dim;
  };

  /// `program` must outlive what is found. Errors: cannot_be_lowered's.
  static Result<FusionPatterns> find(const Program& program, const FusionRules& rules);

  template <typename T>
  const T* made_by(ValueId value) const {
    return makers_[value] == kNone ? nullptr : std::get_if<T>(&program_->ops[makers_[value]].what);
  }
  /// Rising.
  const std::vector<size_t>& readers(ValueId value) const { return readers_[value]; }
  /// Whether an operation after that one reads some of its numbers, also as a part of another
  /// value.
  bool is_read_after(ValueId value, size_t op) const;
  bool has_one_reader(ValueId value) const {
    return readers_[value].size() == 1 && value != program_->logits;
  }

  const std::vector<Bundle>& bundles() const { return bundles_; }
  std::optional<size_t> bundle_of(size_t linear) const { return bundle_of_[linear]; }
  /// Of an attention; null: it has none.
  const Heads* heads_of(size_t attention) const {
    const auto found = heads_.find(attention);
    return found == heads_.end() ? nullptr : &found->second;
  }
  /// Of a product; null: it is none.
  const Gate* gate_of(size_t mul) const {
    const auto found = gates_.find(mul);
    return found == gates_.end() ? nullptr : &found->second;
  }
  /// Of an attention or either product; null: it has none, or its keys are never expanded.
  const Latents* latents_of(size_t op) const {
    const auto found = latents_.find(op);
    return found == latents_.end() ? nullptr : &found->second;
  }
  /// Another's dispatch computes it.
  bool is_absorbed(size_t op) const { return absorbed_[op]; }
  void absorb(size_t op) { absorbed_[op] = true; }

 private:
  static constexpr size_t kNone = SIZE_MAX;

  FusionPatterns(const Program& program, const FusionRules& rules);
  Status find_heads(size_t index, const op::Attention& attention);
  void find_latents(size_t index, const op::Attention& attention);
  void find_gate(size_t index, const op::Mul& mul);
  std::optional<size_t> bundle(std::string label, const std::vector<ValueId>& values);
  std::vector<TensorId> biases_of(const std::vector<size_t>& linears) const;
  bool is_only_for(ValueId value) const;
  ValueId product_under(ValueId value) const;

  const Program* program_;
  FusionRules rules_;
  std::vector<size_t> makers_;
  std::vector<std::vector<size_t>> readers_;
  std::vector<bool> absorbed_;
  std::vector<std::optional<size_t>> bundle_of_;
  std::vector<Bundle> bundles_;
  std::map<size_t, Heads> heads_;
  std::map<size_t, Gate> gates_;
  std::map<size_t, Latents> latents_;
};

}  // namespace pumice
