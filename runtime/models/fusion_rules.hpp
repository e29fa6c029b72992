// Which operations of a program one dispatch may compute together: switches, each with a name, to
// measure what a rule is worth and to prove that it changes rounding only.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace pumice {

/// Rules by which one dispatch does the work of several operations, or several operations' work is
/// done in another form. Without a rule results differ by rounding only.
enum class FusionRule : uint32_t {
  kStack,       ///< "stack": matrices that write side by side are one product
  kEmbedScale,  ///< "embed_scale": a factor of the embedding, as it is read
  kResidual,    ///< "residual": a sum that a norm reads, by the norm
  kBias,        ///< "bias": biases of q, k and v, by rope_kv
  kHeadNorm,    ///< "head_norm": norms of the heads of q and k, by rope_kv
  kGate,        ///< "gate": activation(gate) times up, in one pass
  kExpand,      ///< "expand": of many rows, attention to latents by the keys they stand for
  kNorm,        ///< "norm": of few rows, a norm by the products before and behind it
  kActivation,  ///< "activation": of few rows, the gate's pass by the product of gates and ups
  kPlanes,      ///< "planes": x of products that read planes (ops::PlanesOfX), by what makes it
};
inline constexpr size_t kFusionRuleCount = 10;
std::string_view fusion_rule_name(FusionRule rule);

/// A set of rules, all of them by default.
class FusionRules {
 public:
  FusionRules() { rules_.set(); }
  static FusionRules none() {
    FusionRules rules;
    rules.rules_.reset();
    return rules;
  }
  /// "all", "none", "RULE" (that one alone) or "-RULE" (all but that one). Errors
  /// (kInvalidArgument) name the rules.
  static Result<FusionRules> parse(std::string_view text);

  bool has(FusionRule rule) const { return rules_.test(static_cast<size_t>(rule)); }
  void set(FusionRule rule, bool on) { rules_.set(static_cast<size_t>(rule), on); }
  /// Names with commas; "all" or "none".
  std::string text() const;
  bool operator==(const FusionRules&) const = default;

 private:
  std::bitset<kFusionRuleCount> rules_;
};

}  // namespace pumice
