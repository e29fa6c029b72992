// What a model computes, as data: a flat list of typed operations over named values, in an order in
// which they can be computed, without control flow. A family (families/*.cpp) builds it through a
// ProgramBuilder (program_builder.hpp); everything else reads it and knows no family: which tensors
// a file must have (program_tensors.hpp), the evaluation in fp64 (reference.hpp), the dispatches
// of a step (lowering.hpp), a text for people (program_text.hpp).
//
// Shapes. A value has `width` numbers for each token of a step; heads lie side by side in it. A
// matrix is a tensor of the file with dims {n_cols, n_rows}: n_rows outputs of n_cols inputs each.
// What a sequence keeps between steps is a value too: `append` gives the keys and values of all
// positions up to each token, which any later operation may read, of the same layer or not. The
// state of a recurrence is its operation's own: nothing else reads it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.hpp"
#include "shaders/common/activation_kind.hpp"
#include "shaders/rope_kv/rope_table.hpp"

namespace pumice {

using ValueId = uint32_t;   ///< index into Program::values
using TensorId = uint32_t;  ///< index into Program::tensors

enum class ValueKind {
  kRows,    ///< numbers, [tokens][width]
  kState,   ///< keys and values of a slot, of all positions so far; no width
  kRoutes,  ///< for each token `width` experts in rank order, each with its weight
};

struct Value {
  std::string name;  ///< unique among the values of a layer
  ValueKind kind = ValueKind::kRows;
  uint32_t width = 0;
};

/// A tensor that the file must have, of this shape.
struct TensorSpec {
  std::string name;
  std::array<uint64_t, 4> dims = {1, 1, 1, 1};  ///< as in GgufTensor

  uint64_t n_elements() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
};

/// What a sequence keeps between steps for some of the layers: n_slots times keys and values, or
/// keys alone, of which values are a part, or n_slots states of recurrences, each one for all
/// positions so far.
struct StateGroup {
  std::string name;
  uint32_t n_kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t window = 0;      ///< positions that are read again, the newest included; 0: all
  uint32_t n_slots = 0;     ///< layers with a slot of their own
  uint32_t latent_dim = 0;  ///< a key's first so many numbers are its value; 0: values are kept too
  uint32_t v_dim = 0;       ///< numbers of a value that is kept, where a key has more; 0: as many
  bool recurrent = false;
  std::vector<uint64_t> state_floats = {};  ///< of a recurrent group: each slot's, kept in fp32

  /// Numbers of a value, wherever it lies.
  uint32_t value_dim() const {
    return latent_dim != 0 ? latent_dim : v_dim != 0 ? v_dim : head_dim;
  }
};

/// Rows [first_row, first_row + n_rows) of a matrix: all of it, or a part of a fused one.
struct MatrixRows {
  TensorId tensor = 0;
  uint32_t first_row = 0;
  uint32_t n_rows = 0;
};

/// How a token's experts follow from their scores.
struct Router {
  enum class Probability { kSoftmax, kSigmoid };
  Probability probability = Probability::kSoftmax;  ///< of scores, a softmax over all of a token's
  bool renormalised = true;  ///< the weights of a token's experts are divided by their sum
  double scale = 1;          ///< of the weights
  /// Experts are in so many groups of consecutive ones, and only those of the best groups are
  /// taken: whose two best experts have the largest sum.
  uint32_t n_groups = 1;
  uint32_t n_used_groups = 1;

  bool operator==(const Router&) const = default;
};
constexpr Router kSigmoidRouter{.probability = Router::Probability::kSigmoid};
/// Their weights are the probabilities as they are.
constexpr Router kPlainSigmoidRouter{.probability = Router::Probability::kSigmoid,
                                     .renormalised = false};

/// What of a recurrence's state, a matrix [value_dim][key_dim] for each head, decays alike: its
/// step Δ is as many numbers a token, and its a, not positive, as many in all.
enum class StateDecay {
  kHead,   ///< all of it (Mamba-2, gated delta nets): Δ and a [n_heads]
  kKey,    ///< a key's column (Kimi delta attention): Δ [n_heads][key_dim], a [n_heads]
  kState,  ///< nothing else (Mamba-1): Δ [n_heads][value_dim], a [n_heads][value_dim][key_dim]
};

/// How the rows of a text become its embedding.
enum class Pooling {
  kNone,  ///< each row is one
  kMean,
  kCls,   ///< the first row
  kLast,  ///< the last row
};

/// Operands are values named x, y, a, b … and tensors; all else is a constant of the operation.
namespace op {

/// Of Attention::ahead: a query sees all the keys that follow it.
inline constexpr uint32_t kAllAhead = UINT32_MAX;

/// The token's row of a matrix [n_vocab][width].
struct Embed {
  TensorId table;
};
/// The position's row of a matrix [n_positions][width]; no context is longer than that.
struct EmbedPosition {
  TensorId table;
};
/// x + a row of a matrix [n][width], the same for every token.
struct AddRow {
  ValueId x;
  TensorId table;
  uint32_t row;
};
/// Rows that are computed elsewhere: of a block that predicts, the model's own hidden rows.
struct GivenRows {};
/// x Wᵀ + bias
struct Linear {
  ValueId x;
  MatrixRows weight;
  std::optional<TensorId> bias;  ///< a number for each row of the tensor, whose part is the rows'
};
/// x / √(mean(x²) + eps) · weight, over each `group` numbers: a row, or a head of it, all with the
/// same weight [group], or each with its own, or none.
struct RmsNorm {
  ValueId x;
  std::optional<TensorId> weight;
  float eps;
  uint32_t group;
};
/// (x − mean) / √(variance + eps) · weight + bias, mean and variance over each `group` numbers: a
/// row, or a head of it. Weight and bias are as wide as a row.
struct LayerNorm {
  ValueId x;
  TensorId weight;
  std::optional<TensorId> bias;
  float eps;
  uint32_t group;
};
/// ropes[rope].dims numbers of each head, from its number `first` on, turned by its angles at the
/// token's position.
struct Rope {
  ValueId x;
  uint32_t rope;  ///< index into Program::ropes
  uint32_t head_dim;
  bool halves;  ///< pairs are (i, i + dims/2) rather than (2i, 2i + 1)
  uint32_t first = 0;
};
/// The slot's keys and values with the step's own.
struct Append {
  ValueId k;
  std::optional<ValueId> v;  ///< none: values are a part of the keys
  uint32_t group;            ///< index into Program::state_groups
  uint32_t slot;
};
/// Attention, head_dim numbers a head of q and k; n_heads / n_kv_heads heads of q share one of k
/// and v. Causal unless queries see keys ahead of them, for which the step must hold the whole
/// text. softmax over the visible keys of soft_cap(scale q·k), times v.
struct Attention {
  ValueId q;
  ValueId kv;
  uint32_t n_heads;
  uint32_t n_kv_heads;
  uint32_t head_dim;
  double scale;
  uint32_t window;  ///< a query sees so many keys, its own position's included; 0: all
  uint32_t ahead;   ///< of those so many are behind its own position; kAllAhead: all there are
  double soft_cap;  ///< scores become cap · tanh(score / cap); 0: none
  std::optional<TensorId> sinks;  ///< [n_heads] scores of a key without value
  uint32_t latent_dim = 0;        ///< as the state group's
  uint32_t v_dim = 0;             ///< likewise

  /// Numbers of a value, so also of a head of the result.
  uint32_t value_dim() const {
    return latent_dim != 0 ? latent_dim : v_dim != 0 ? v_dim : head_dim;
  }
};
/// The first numbers of each head of x times the head's own matrix, W: rows [first_row, first_row +
/// n_rows) of the head's share of a tensor, whose rows are those of the first head, then those of
/// the next. x Wᵀ, or x W where it is transposed. What a head has behind those numbers follows the
/// product unchanged.
struct HeadLinear {
  ValueId x;
  TensorId weight;
  uint32_t n_heads;
  uint32_t first_row;
  uint32_t n_rows;
  bool transposed;
};
/// Σ over k of weight[i][k] · x[i], k counting back from `taps` − 1 at the token itself, of each
/// column i by itself; nothing comes before the first token. Its state are the taps − 1 newest
/// tokens' x, oldest first.
struct CausalConv {
  ValueId x;
  TensorId weight;               ///< {taps, width}
  std::optional<TensorId> bias;  ///< [width]
  bool silu;                     ///< of the sum
  uint32_t group;                ///< index into Program::state_groups
  uint32_t slot;
};
/// A matrix S [value_dim][key_dim] for each head, token after token: with Δ = softplus(step +
/// bias), each number of S times exp(a Δ) of what decays with it, then S ← S + u kᵀ, and the result
/// is S q + d v. u is Δ v, or with beta sigmoid(beta) (v − S k). S is its state.
struct Recurrence {
  ValueId q;                    ///< [n_key_heads][key_dim], times q_scale
  ValueId k;                    ///< likewise
  ValueId v;                    ///< [n_heads][value_dim]
  ValueId step;                 ///< [n_heads]; as `decay` says
  std::optional<ValueId> beta;  ///< [n_heads]; a decay of keys has one
  double q_scale;
  double k_scale;
  TensorId a;                 ///< as `decay` says
  TensorId bias;              ///< as step
  std::optional<TensorId> d;  ///< [n_heads], or as step where each value has one
  StateDecay decay;
  uint32_t n_heads;
  uint32_t n_key_heads;
  uint32_t key_dim;
  uint32_t value_dim;
  bool by_remainder;  ///< head h has key head h mod n_key_heads, rather than as many in a row one
  uint32_t group;     ///< index into Program::state_groups
  uint32_t slot;

  /// Numbers of step, so also of its bias.
  uint32_t n_steps() const {
    if (decay == StateDecay::kHead) return n_heads;
    return n_heads * (decay == StateDecay::kKey ? key_dim : value_dim);
  }
};
struct Activation {
  ValueId x;
  ActivationKind kind;
};
/// alpha_p x² + beta x where x is above 0, alpha_n (exp(min(x, eps)) − 1 − x) + beta x elsewhere.
struct Xielu {
  ValueId x;
  float alpha_p;
  float alpha_n;
  float beta;
  float eps;
};
/// b may be narrower: each of its numbers then is a factor of as many consecutive ones of a.
struct Mul {
  ValueId a;
  ValueId b;
};
struct Add {
  ValueId a;
  ValueId b;
};
struct Scale {
  ValueId x;
  double factor;
};
/// min(x, limit), or x between -limit and limit
struct Clamp {
  ValueId x;
  double limit;
  bool both_sides;
};
/// cap · tanh(x / cap)
struct SoftCap {
  ValueId x;
  double cap;
};
/// Numbers [first, first + the result's width) of each row.
struct Split {
  ValueId x;
  uint32_t first;
};
/// The numbers of a, then those of b.
struct Concat {
  ValueId a;
  ValueId b;
};
/// Numbers [first, first + n) of each `group` of a row, side by side.
struct SplitGroups {
  ValueId x;
  uint32_t group;
  uint32_t first;
  uint32_t n;
};
/// The n_used experts of the highest probabilities, each with a bias that has no part in its
/// weight, ties to the lowest id.
struct Route {
  ValueId scores;
  uint32_t n_used;
  Router router;
  std::optional<TensorId> bias;  ///< [n_experts]
  std::optional<TensorId> gain;  ///< [n_experts]: an expert's weight is times its own
};
/// x Wᵀ + bias for each of a token's experts, in rank order, of a tensor {n_cols, n_rows,
/// n_experts}. x is one row for all of them, or one for each.
struct ExpertLinear {
  ValueId x;
  ValueId routes;
  TensorId weight;
  std::optional<TensorId> bias;  ///< {n_rows, n_experts}
};
/// The experts' rows of x, weighted and summed in rank order.
struct Combine {
  ValueId x;
  ValueId routes;
};

}  // namespace op

using Operation =
    std::variant<op::Embed, op::EmbedPosition, op::AddRow, op::GivenRows, op::Linear, op::RmsNorm,
                 op::LayerNorm, op::Rope, op::Append, op::Attention, op::HeadLinear, op::CausalConv,
                 op::Recurrence, op::Activation, op::Xielu, op::Mul, op::Add, op::Scale, op::Clamp,
                 op::SoftCap, op::Split, op::SplitGroups, op::Concat, op::Route, op::ExpertLinear,
                 op::Combine>;

/// A low-rank adapter that rows may have (adapter.hpp).
struct ProgramAdapter {
  std::string name;
  std::array<uint64_t, 2> fingerprint = {};  ///< what keys and values of its rows depend on too

  bool operator==(const ProgramAdapter&) const = default;
};

/// A matrix to whose products (op::Linear) adapters add.
struct AdaptedMatrix {
  TensorId tensor = 0;
  uint32_t rank = 0;  ///< of all adapters, padded as their kernel wants it
};

/// One step of the list. It gives exactly one value.
struct Op {
  Operation what;
  ValueId result = 0;
};

/// Consecutive operations that repeat, more or less, with other weights. Nothing but `output` of
/// one, and states, is read outside of it.
struct Layer {
  uint32_t first_op = 0;
  uint32_t end_op = 0;
  ValueId input = 0;
  ValueId output = 0;
};

struct Program {
  std::string architecture;  ///< general.architecture
  std::string name;          ///< general.name; may be empty
  uint32_t n_vocab = 0;
  uint32_t context_length = 0;  ///< what the model was trained for, in tokens

  std::vector<TensorSpec> tensors;  ///< in the order of their first use, each once
  std::vector<ops::RopeConfig> ropes;
  std::vector<StateGroup> state_groups;
  std::vector<Value> values;
  std::vector<Op> ops;
  std::vector<Layer> layers;
  /// Blocks of the file behind the layers that predict tokens after the next one: nothing here
  /// reads them. The first is a program of its own (build_prediction).
  uint32_t n_prediction_blocks = 0;
  uint32_t predicting_block = 0;  ///< the file's block that this is the program of; 0: its layers'
  ValueId logits = 0;             ///< [tokens][n_vocab]
  /// Of a program whose file has blocks that predict, and of theirs: the rows behind the last norm,
  /// [tokens][width], which such a block is given (op::GivenRows).
  std::optional<ValueId> hidden = {};
  /// Steps compute `hidden` at every token and leave it (Lowered::hidden), not only where there
  /// are logits.
  bool gives_hidden = false;
  /// Of a program that embeds: its result, `logits`, is then [tokens][width of an embedding].
  std::optional<Pooling> pooling = {};
  /// Of one that ranks (models/ranking.hpp): which number of a pooled row says that a text answers a
  /// query. Its result is then [tokens][labels], of which `pooling` takes one row.
  std::optional<uint32_t> relevant_label = {};
  /// Of which a row may have one; and to what they add, by rising tensor.
  std::vector<ProgramAdapter> adapters = {};
  std::vector<AdaptedMatrix> adapted = {};
};

/// What a HeadLinear reads and writes of each head.
struct HeadProduct {
  uint32_t n_in = 0;    ///< numbers that are multiplied
  uint32_t n_out = 0;   ///< the product's
  uint32_t n_kept = 0;  ///< numbers behind them that stay
};
HeadProduct head_product(const Program& program, const op::HeadLinear& linear);

/// The program without what makes logits of the rows behind its last norm, which are its result.
/// Errors (kBadFile): its logits are not a matrix's product.
Result<Program> without_output(Program program);

/// Of what the first layer reads, or of the logits without layers.
uint32_t embedding_width(const Program& program);

/// The most positions that its position embeddings have rows for; without any, no limit.
std::optional<uint32_t> position_limit(const Program& program);

/// The operation that gives rows computed elsewhere, if there is one.
const Op* given_rows(const Program& program);
/// Numbers of such a row; 0: there are none.
uint32_t given_width(const Program& program);

/// "rms_norm", "append", "silu"
std::string_view op_name(const Operation& what);
/// Values that it reads, in the order of its operands.
std::vector<ValueId> op_inputs(const Operation& what);
/// Tensors that it reads.
std::vector<TensorId> op_tensors(const Operation& what);
/// Its constants in words, "4 heads of 64, scale 0.125"; may be empty.
std::string op_constants(const Program& program, const Operation& what);

/// Errors (kInvalidArgument): it embeds, and has no logits to choose tokens by; or it reads rows
/// that are computed elsewhere.
Status check_writes_text(const Program& program);

/// The program, whose steps give their hidden rows. Errors (kInvalidArgument): no block that predicts
/// is in its file, so nothing reads them.
Result<Program> with_hidden_rows(Program program);

/// The program of its first layers and what follows the last one.
Program first_layers(const Program& program, uint32_t n_layers);

}  // namespace pumice
