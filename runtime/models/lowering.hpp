// A program as a list of dispatches: which kernel computes what, from where to where in a step's
// memory. Plain data, made without a device: what a step needs of weights (weights.hpp), of memory
// (activation_plan.hpp) and of attention's work lists follows from it, and the decoder
// (decoder.hpp) records it.
//
// Matrices that feed one kernel write side by side, whether or not they are one product: q, k and v
// for rope_kv, gate and up for the gated activation. After the last layer only the rows whose
// logits are asked for are computed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/result.hpp"
#include "models/fusion_rules.hpp"
#include "models/program.hpp"
#include "models/state_layout.hpp"
#include "shaders/elementwise/elementwise.hpp"
#include "shaders/gated_activation/gated_activation.hpp"
#include "shaders/recurrence/recurrence.hpp"

namespace pumice {

using BufferId = uint32_t;  ///< index into Lowered::buffers
using GroupId = uint32_t;   ///< index into Lowered::matrices
using VectorId = uint32_t;  ///< index into Lowered::vectors

/// Rows of a step that a buffer has.
enum class RowSet {
  kAll,
  kLogits,  ///< those whose logits are computed
};

/// Floats [rows][width]. Used by dispatches [first_use, last_use].
struct Buffer {
  uint32_t width = 0;
  RowSet rows = RowSet::kAll;
  uint32_t first_use = 0;
  uint32_t last_use = 0;
};

/// Columns of a buffer from `first` on.
struct View {
  BufferId buffer = 0;
  uint32_t first = 0;
};

/// Elements of a vector from `first` on.
struct VectorPart {
  VectorId vector = 0;
  uint32_t first = 0;
};

inline constexpr size_t kMostAttentionClasses = 32;

/// What attention's work lists and pipelines depend on.
struct AttentionClass {
  uint32_t n_heads = 0;
  uint32_t n_kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t window = 0;
  uint32_t ahead = 0;
  double soft_cap = 0;
  /// They are not divided by the root of head_dim, or by far less: what q and k were rounded to
  /// weighs that much more.
  bool large_scores = false;
  bool sinks = false;       ///< each head has a key without value
  uint32_t latent_dim = 0;  ///< as op::Attention's
  uint32_t v_dim = 0;       ///< numbers of a value, where a key has more; 0: as many
  /// The class of latents whose chunks of many rows are attended by what the latents stand for,
  /// keys and values of each head (latent_expansion.hpp).
  std::optional<uint32_t> expands = {};

  uint32_t value_dim() const {
    return latent_dim != 0 ? latent_dim : v_dim != 0 ? v_dim : head_dim;
  }
  bool operator==(const AttentionClass&) const = default;
};

namespace call {

struct Embed {
  GroupId table;
  bool by_position;  ///< its rows are positions' rather than tokens'
  View y;
  float scale;
};
/// Matrices of a group side by side: all of them, or one.
struct Linear {
  GroupId matrices;
  std::optional<uint32_t> member;
  View x;
  View y;
};
struct RmsNorm {
  View x;
  std::optional<View> residual;  ///< added to x first, in place
  std::optional<VectorId> weight;
  View y;
  uint32_t n;
  float eps;
  uint32_t n_groups;  ///< of n numbers each, side by side in a row
  bool gathers;       ///< x has all rows, y those of logits
  bool weight_each;   ///< groups have weights of their own
};
struct LayerNorm {
  View x;
  std::optional<View> residual;  ///< added to x first, in place
  VectorId weight;
  std::optional<VectorId> bias;
  View y;
  uint32_t n;
  float eps;
  uint32_t n_groups;  ///< of n numbers each, side by side in a row, with weights of their own
  bool gathers;       ///< x has all rows, y those of logits
};
/// Rotation of heads in place.
struct Rope {
  View x;
  uint32_t n_heads;
  uint32_t head_dim;
  uint32_t rope;  ///< index into Program::ropes
  bool halves;
};
/// Biases, norms of heads and rotation of q and k, and k and v into the state; or keys alone.
struct RopeKv {
  View qkv;
  uint32_t n_heads;  ///< 0: there is no q
  uint32_t n_kv_heads;
  uint32_t head_dim;
  std::optional<uint32_t> rope;  ///< index into Program::ropes
  bool halves;
  std::optional<VectorId> bias;  ///< of q, k and v, one after the other
  std::optional<VectorId> q_norm;
  std::optional<VectorId> k_norm;
  float norm_eps;
  StateSlot state;
  bool has_values = true;
  uint32_t v_dim = 0;  ///< as the state group's
};
/// A matrix for each head, as op::HeadLinear.
struct HeadLinear {
  View x;
  GroupId matrices;  ///< one, the heads' rows one after the other
  View y;
  uint32_t n_heads;
  uint32_t x_head_dim;
  uint32_t first_row;
  uint32_t n_rows;
  bool transposed;
  /// To or from the latents' space: only of rows whose chunks this class of attention has.
  std::optional<uint32_t> attention_class;
};
struct Attention {
  View q;
  View y;
  uint32_t attention_class;  ///< index into Lowered::attention_classes
  double scale;
  StateSlot state;
  std::optional<VectorId> sinks;
};
/// Attention to latents of the chunks that `attention_class`, which expands, has: from queries as
/// they are before the one product of heads to results as they are behind the other.
struct ExpandedAttention {
  View q;
  View y;
  GroupId keys;    ///< one, of the product of queries: each head's, transposed; or `values`
  GroupId values;  ///< of the product of results
  bool fused;      ///< both are one matrix: of each head's rows the first are of keys
  uint32_t attention_class;
  double scale;
  StateSlot state;
  std::optional<VectorId> sinks;
};
struct CausalConv {
  View x;
  View y;  ///< another buffer
  VectorId weight;
  std::optional<VectorId> bias;
  uint32_t n;
  uint32_t taps;
  bool silu;
  StateSlot state;
};
struct Recurrence {
  View q;
  View k;
  View v;
  View step;
  std::optional<View> beta;
  View y;  ///< another buffer
  float q_scale;
  float k_scale;
  VectorId a;
  VectorId bias;
  std::optional<VectorId> d;
  ops::Recurrence::Shape shape;
  StateSlot state;
};
/// activation(gate) * up of a row's gates and ups, side by side.
struct Gated {
  View gate_up;
  View y;
  ops::GatedActivation::Kind kind;
  uint32_t n;
};
struct Elementwise {
  ops::Elementwise::Kind kind;
  View a;
  std::optional<View> b;           ///< kAdd, kMul, kMulGroups
  std::optional<VectorPart> bias;  ///< kAddBias
  View y;                          ///< may be a
  uint32_t n;
  double factor;  ///< kScale, kSoftCap, kAtMost, kWithin, kXielu
  bool gathers;   ///< a has all rows, y those of logits
  ops::Elementwise::Xielu xielu = {};
  uint32_t b_group = 1;  ///< of kMulGroups
  uint32_t a_group = 0;  ///< of kCopyGroups, whose y_group numbers are copied of each
  uint32_t y_group = 1;
};
struct Route {
  View scores;
  View routes;  ///< n_used times an expert's number and the bits of its weight
  uint32_t n_experts;
  uint32_t n_used;
  Router router;
  std::optional<VectorId> bias;
  std::optional<VectorId> gains;
};
/// Routes sorted by expert, where there are so many rows that ExpertLinear wants them so.
struct GroupRoutes {
  View routes;
  View groups;  ///< ops::ExpertGemm::Groups
  uint32_t n_experts;
  uint32_t n_used;
};
struct ExpertLinear {
  View x;
  View routes;
  View groups;       ///< what GroupRoutes made of them
  GroupId matrices;  ///< one, the experts' rows one after the other
  std::optional<VectorId> bias;
  View y;
  uint32_t n_experts;
  uint32_t n_used;
  bool row_each;  ///< x has a row for each expert of a token, rather than one for all
};
struct Combine {
  View x;
  View routes;
  View y;
  uint32_t n;
  uint32_t n_used;
};

}  // namespace call

using Call = std::variant<call::Embed, call::Linear, call::RmsNorm, call::LayerNorm, call::Rope,
                          call::RopeKv, call::HeadLinear, call::Attention, call::ExpandedAttention,
                          call::CausalConv, call::Recurrence, call::Gated, call::Elementwise,
                          call::Route, call::GroupRoutes, call::ExpertLinear, call::Combine>;

/// One call of an op; some ops record several commands.
struct Dispatch {
  Call what;
  RowSet rows = RowSet::kAll;  ///< that it computes
  std::string part;            ///< "qkv", "rope_kv", "ffn_norm": for profiles
  std::optional<uint32_t> layer;
};

struct Lowered {
  std::vector<Buffer> buffers;
  std::vector<Dispatch> dispatches;
  std::vector<std::vector<MatrixRows>> matrices;  ///< groups that write side by side
  std::vector<std::vector<TensorId>> vectors;     ///< each one after the other
  std::vector<AttentionClass> attention_classes;
  BufferId logits = 0;                 ///< [logit rows][n_vocab], or of embeddings their width
  std::optional<BufferId> given = {};  ///< of op::GivenRows: full before the first dispatch
};

/// Which experts rows take. For tests: arithmetics can be compared only where they take the same.
enum class Routing {
  kChosen,  ///< by each router
  kKept,    ///< likewise, and Decoder::routes() says it of the last step
  kGiven,   ///< those that Decoder::routes() names before a step; only weights are computed
};

/// Errors: kBadFile, naming the operations that no kernel computes, or the arrangement that none
/// does.
Result<Lowered> lower(const Program& program, const FusionRules& rules = {});

}  // namespace pumice
