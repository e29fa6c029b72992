// Building a Program, an operation a call, in the order of the calls. Each returns the value it
// gives; its width follows from its operands. Calls that are arguments of one call happen in an
// order that the compiler chooses, so where two operations feed a third each has a line of its own.
//
// Tensors are named by stem: "attn_q" is attn_q.weight, with bias also attn_q.bias, and within
// begin_layer … end_layer they are the layer's, "blk.3.attn_q.weight". What does not fit together
// (a residual of another width, heads that do not divide) is kept until `finish` and returned
// there, the first one only; until then values have the widths they should have.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "models/metadata.hpp"
#include "models/program.hpp"

namespace pumice {

class ProgramBuilder {
 public:
  /// How a rope turns heads; from `rotation`.
  struct Rotation {
    uint32_t rope;
    uint32_t head_dim;
    bool halves;
    uint32_t first = 0;  ///< number of a head that turns first
  };
  enum class Pairs { kNeighbours, kHalves };
  enum class Bias { kNone, kAdded };
  /// What heads of q and k are normed by.
  enum class HeadNorm {
    kHead,      ///< RMSNorm of each by itself, before it turns
    kTurned,    ///< the same, after
    kAllHeads,  ///< one RMSNorm of all of them, before they turn
    kLayerNorm  ///< head_layer_norm, before they turn
  };

  struct AttentionOptions {
    uint32_t n_heads;
    double scale;
    uint32_t window = 0;
    double soft_cap = 0;
    uint32_t ahead = 0;           ///< as op::Attention's
    std::string_view sinks = {};  ///< stem of their tensor
  };
  struct SelfAttention {
    uint32_t state_group;
    AttentionOptions attention;
    std::optional<Rotation> rotation = {};    ///< of q and k
    std::optional<Rotation> q_rotation = {};  ///< of q, where it turns by another than k
    std::optional<float> head_norm_eps = {};  ///< heads of q and k are normed; none: they are not
    HeadNorm head_norm = HeadNorm::kHead;
    Bias bias = Bias::kNone;  ///< of q, k and v
    Bias output_bias = Bias::kNone;
    bool fused = false;    ///< q, k and v are rows of one matrix, attn_qkv
    uint32_t n_gates = 0;  ///< sigmoids of attn_gate, each a factor of as many outputs; 0: none
    bool gated_q = false;  ///< each head of attn_q is followed by one of gates of its output
  };
  struct CausalConv {
    uint32_t state_group;  ///< a recurrent one
    uint32_t taps;
    Bias bias = Bias::kNone;
    bool silu = false;
    bool has_channel_dim = false;  ///< its weight is {taps, 1, width of x}
  };
  struct Recurrence {
    uint32_t state_group;  ///< a recurrent one
    uint32_t n_heads;
    uint32_t n_key_heads;
    uint32_t key_dim;
    uint32_t value_dim;
    bool by_remainder = false;
    StateDecay decay = StateDecay::kHead;
    double q_scale = 1;
    double k_scale = 1;
  };
  struct LatentAttention {
    LatentSource source;
    uint32_t n_heads;
    double scale;
    float norm_eps;
    /// Of the keys' and the queries' last numbers; its temperature is all of q's. None: nothing
    /// turns.
    std::optional<RopeSource> rope = {};
  };
  /// A matrix for each head, in one tensor.
  struct HeadMatrices {
    uint32_t n_heads;
    uint32_t n_cols;
    uint32_t head_rows;      ///< rows of a head
    uint32_t first_row = 0;  ///< of them those of the matrix
    uint32_t n_rows;
    bool transposed = false;  ///< x W rather than x Wᵀ
    bool is_flat = false;     ///< the tensor is one matrix of all heads' rows
  };
  /// Of one matrix an expert.
  struct ExpertDims {
    uint32_t n_cols;
    uint32_t n_rows;
    uint32_t n_experts;
  };
  struct Experts {
    ExpertSource source;
    ActivationKind activation = ActivationKind::kSilu;
    std::optional<ValueId> router_input = {};  ///< where it is not what experts read
    std::string_view selection_bias = {};      ///< stem of its tensor
    std::string_view gain = {};                ///< likewise, see `route`
    double limit = 0;                          ///< of what is multiplied; 0: none
    double shared_limit = 0;                   ///< the same of the shared expert
    bool merged = false;                ///< gates and ups are rows of one tensor, ffn_gate_up_exps
    std::string_view shared_gate = {};  ///< stem of a vector: what is shared is times the sigmoid
                                        ///< of its product with the row
  };
  struct GatedFfn {
    ActivationKind activation = ActivationKind::kSilu;
    uint32_t n_ff;
    std::string_view suffix = {};  ///< of the stems: "_shexp"
    /// Activated gates are at most that, and what they multiply is between it and its negative; 0:
    /// no limit.
    double limit = 0;
  };

  explicit ProgramBuilder(const ModelDimensions& dimensions);
  /// Of further operations behind those of a program that is finished.
  static ProgramBuilder behind(Program program);

  Rotation rotation(const RopeSource& rope, uint32_t head_dim, Pairs pairs);
  /// The index of a new group of keys and values; each `append` takes another slot of it. Values
  /// are of `value_dim` numbers where keys have more; 0: of as many.
  uint32_t state_group(std::string_view name, uint32_t n_kv_heads, uint32_t head_dim,
                       uint32_t window = 0, uint32_t value_dim = 0);
  /// The same of one kv head's keys, whose first latent_dim numbers are the values.
  uint32_t latent_group(std::string_view name, uint32_t head_dim, uint32_t latent_dim);

  /// The same for states of recurrences; each operation that has one takes a slot of its own.
  uint32_t recurrent_group(std::string_view name);

  /// For the head of a loop over layers: ends the one before, which gives `x`, and begins layer `i`,
  /// which reads it; false, and none begun, where `i` is `end`.
  bool next_layer(ValueId x, uint32_t i, uint32_t end);
  /// `x` is what the layer reads of those before it.
  void begin_layer(ValueId x);
  /// `x` is what those after it read.
  void end_layer(ValueId x);

  ValueId embed(std::string_view stem, uint32_t width, uint32_t n_vocab);
  /// A row for each position, which bounds the context.
  ValueId embed_position(std::string_view stem, uint32_t width, uint32_t n_positions);
  /// x + row `row` of a matrix of `n_rows`.
  ValueId add_row(ValueId x, std::string_view stem, uint32_t n_rows, uint32_t row);
  /// Rows that are computed elsewhere.
  ValueId given_rows(uint32_t width);
  ValueId linear(ValueId x, std::string_view stem, uint32_t n_outputs, Bias bias = Bias::kNone);
  /// The same with `n_outputs` rows from `first_row` on of a fused matrix of `n_rows`.
  ValueId linear_rows(ValueId x, std::string_view stem, uint32_t n_rows, uint32_t first_row,
                      uint32_t n_outputs, Bias bias = Bias::kNone);
  ValueId rms_norm(ValueId x, std::string_view stem, float eps);
  /// An RMSNorm of each head by itself.
  ValueId head_norm(ValueId x, std::string_view stem, uint32_t head_dim, float eps);
  /// The same with weights of its own for each head.
  ValueId group_norm(ValueId x, std::string_view stem, uint32_t n_groups, float eps);
  /// Of a tensor whose name has no ".weight".
  ValueId bare_rms_norm(ValueId x, std::string_view name, float eps);
  /// Of heads, without weights.
  ValueId plain_head_norm(ValueId x, uint32_t head_dim, float eps);
  ValueId layer_norm(ValueId x, std::string_view stem, float eps, Bias bias = Bias::kAdded);
  /// A layer norm of each head by itself, with weights [head_dim, heads] and no bias.
  ValueId head_layer_norm(ValueId x, std::string_view stem, uint32_t head_dim, float eps);
  ValueId rope(ValueId x, const Rotation& rotation);
  /// Of a latent group there are no values.
  ValueId append(uint32_t state_group, ValueId k, std::optional<ValueId> v = {});
  ValueId attention(ValueId q, ValueId kv, const AttentionOptions& options);
  /// As op::HeadLinear.
  ValueId head_linear(ValueId x, std::string_view stem, const HeadMatrices& matrices);
  /// `options.bias` of the stem's tensors, which are {taps, width of x} and [width].
  ValueId causal_conv(ValueId x, std::string_view stem, const CausalConv& options);
  /// Mamba's, of ssm_a, ssm_dt and ssm_d, where `beta` is none; a gated delta net's, of ssm_a and
  /// ssm_dt.
  ValueId recurrence(ValueId q, ValueId k, ValueId v, ValueId step, std::optional<ValueId> beta,
                     const Recurrence& options);
  /// An operation on one value that gives another as wide: each(op::SoftCap{x, 30}).
  template <typename OnOneValue>
  ValueId each(const OnOneValue& o) {
    return add_op_on(o.x, o, width(o.x));
  }
  ValueId relu(ValueId x) { return activation(x, ActivationKind::kRelu); }
  ValueId silu(ValueId x) { return activation(x, ActivationKind::kSilu); }
  ValueId gelu(ValueId x) { return activation(x, ActivationKind::kGelu); }
  ValueId gelu_tanh(ValueId x) { return activation(x, ActivationKind::kGeluTanh); }
  ValueId sigmoid(ValueId x) { return activation(x, ActivationKind::kSigmoid); }
  /// b may be narrower: each of its numbers then is a factor of as many consecutive ones of a.
  ValueId mul(ValueId a, ValueId b);
  ValueId add(ValueId a, ValueId b);
  ValueId scale(ValueId x, double factor);
  /// By a tensor of one number, which the file must have.
  ValueId scale(ValueId x, const ScalarSource& factor);
  ValueId soft_cap(ValueId x, double cap);
  /// min(x, limit)
  ValueId at_most(ValueId x, double limit) { return clamp(x, limit, false); }
  /// x between -limit and limit
  ValueId within(ValueId x, double limit) { return clamp(x, limit, true); }
  ValueId split(ValueId x, uint32_t first, uint32_t width);
  /// The numbers of a, then those of b.
  ValueId concat(ValueId a, ValueId b);
  /// Numbers [first, first + n) of each `group` consecutive ones.
  ValueId split_groups(ValueId x, uint32_t group, uint32_t first, uint32_t n);
  /// `bias`: stem of a tensor that has a part in the choice; `gain`: of one, ".scale", that
  /// experts' weights are times; empty: none.
  ValueId route(ValueId scores, uint32_t n_used, const Router& router = {},
                std::string_view bias = {}, std::string_view gain = {});
  ValueId expert_linear(ValueId x, ValueId routes, std::string_view stem, const ExpertDims& dims,
                        Bias bias = Bias::kNone);
  ValueId combine(ValueId x, ValueId routes);

  /// Attention to all keys before a query, kept in a group "full", its scores over √head_dim; what
  /// else an architecture has is set in what this returns. Without a rope nothing turns.
  SelfAttention full_attention(const ModelDimensions& d);
  SelfAttention full_attention(const ModelDimensions& d, const RopeSource& rope, Pairs pairs);
  /// `full` to the last `window` keys, which a group "window" keeps.
  SelfAttention in_window(SelfAttention full, uint32_t window);

  /// The usual attention, of attn_q, attn_k, attn_v and attn_output, and of attn_q_norm and
  /// attn_k_norm where heads are normed: as wide as x.
  ValueId self_attention(ValueId x, const SelfAttention& options);

  /// Multi-head latent attention: attn_kv_a_mqa makes what is kept of a token, a latent, normed by
  /// attn_kv_a_norm, and a key's turning numbers. attn_k_b takes each head of q to where the
  /// latent is, attn_v_b each head of the result to its values; attn_kv_b has both matrices in
  /// older files. q is attn_q's, or by a latent of its own, of attn_q_a, attn_q_a_norm and
  /// attn_q_b. As wide as x.
  ValueId latent_attention(ValueId x, uint32_t state_group, const LatentAttention& options);

  /// The usual feed-forward, of ffn_gate, ffn_up and ffn_down: as wide as x.
  ValueId gated_ffn(ValueId x, ActivationKind kind, uint32_t n_ff) {
    return gated_ffn(x, {.activation = kind, .n_ff = n_ff});
  }
  ValueId gated_ffn(ValueId x, const GatedFfn& options);

  /// The usual mixture of experts, of ffn_gate_inp, ffn_gate_exps, ffn_up_exps and ffn_down_exps,
  /// and of ffn_gate_shexp, ffn_up_shexp and ffn_down_shexp where one is shared: as wide as x.
  ValueId experts(ValueId x, const Experts& options);

  /// What the first of the blocks reads: tokens' embeddings; of one that predicts nextn.eh_proj of
  /// those, of the tokens that follow, and of the model's hidden rows, which are given, as they are
  /// behind its output norm; each normed, by nextn.enorm and nextn.hnorm.
  ValueId input(const Blocks& blocks, uint32_t width, float eps);
  /// What the last of the blocks gives, normed, times the output matrix.
  Result<Program> finish(ValueId x, const Blocks& blocks, float eps);

  /// x, RMS-normed by output_norm, times the output matrix.
  Result<Program> finish(ValueId x, std::string_view output_stem, float eps);

  /// The program whose result is `logits`. Errors (kBadFile): what did not fit together.
  Result<Program> finish(ValueId logits);
  /// The program whose result are embeddings of tokens, which make a text's by `pooling`.
  Result<Program> finish_embedding(ValueId x, Pooling pooling);
  /// The program whose result are numbers of each label, of which `relevant` ranks texts.
  Result<Program> finish_ranking(ValueId scores, Pooling pooling, uint32_t relevant);

 private:
  ProgramBuilder() = default;
  Rotation add_rotation(const RopeSource& rope, uint32_t head_dim, uint32_t first, bool halves);
  ValueId normed_heads(ValueId x, std::string_view stem, uint32_t head_dim,
                       const SelfAttention& options);
  ValueId latent_queries(ValueId x, const LatentAttention& options);
  ValueId activation(ValueId x, ActivationKind kind);
  uint32_t take_slot(uint32_t recurrent_group, uint64_t n_floats);
  ValueId clamp(ValueId x, double limit, bool both_sides);
  ValueId limited_mul(ValueId activated, ValueId x, double limit);
  ValueId add_op(Operation what, std::string_view base_name, uint32_t width,
                 ValueKind kind = ValueKind::kRows);
  /// For an operation without tensors on one value: "attn_q.rope".
  ValueId add_op_on(ValueId x, Operation what, uint32_t width);
  TensorId tensor(std::string_view stem, std::string_view suffix, std::array<uint64_t, 4> dims);
  TensorId tensor(const TensorSpec& spec);
  uint32_t width(ValueId x, ValueKind kind = ValueKind::kRows) const;
  void expect_heads(ValueId x, std::string_view stem, uint32_t head_dim);
  template <typename... Args>
  void expect(bool fits, fmt::format_string<Args...> format, Args&&... args) {
    if (!fits && status_.ok()) {
      status_ = make_error(ErrorCode::kBadFile, format, std::forward<Args>(args)...);
    }
  }

  Program program_;
  std::string prefix_;                    // of the layer's tensors
  std::map<std::string, uint32_t> used_;  // names of values of the layer, with how often
  std::map<std::string, TensorId> tensor_ids_;
  bool in_layer_ = false;
  Status status_;
};

}  // namespace pumice
