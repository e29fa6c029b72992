// A program as a list of dispatches: which kernel computes what, from where to where in a step's
// memory. Plain data, made without a device: what a step needs of weights (weights.hpp), of memory
// (decoder_buffers.hpp) and of attention's work lists follows from it, and the decoder
// (decoder.hpp) records it.
//
// Matrices that feed one kernel write side by side, whether or not they are one product: q, k and v
// for rope_kv, gate and up for the gated activation. After the last layer only the rows whose
// logits are asked for are computed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "models/calls/calls.hpp"
#include "models/fusion_rules.hpp"
#include "models/parts.hpp"
#include "models/program.hpp"

namespace pumice {

/// Rows of a step that a buffer has.
enum class RowSet {
  kAll,
  kLogits,  ///< those whose logits are computed
};

/// The dispatches that use a buffer are none before `first` and none after `last`.
struct Uses {
  uint32_t first = std::numeric_limits<uint32_t>::max();
  uint32_t last = 0;

  void add(uint32_t dispatch) {
    first = std::min(first, dispatch);
    last = std::max(last, dispatch);
  }
  bool none() const { return first > last; }
  bool meets(const Uses& other) const { return first <= other.last && other.first <= last; }
};

/// Floats [rows][width].
struct Buffer {
  uint32_t width = 0;
  RowSet rows = RowSet::kAll;
  Uses uses = {};
  /// In a step of no more than ops::Gemv::kMaxRows rows, where calls do what otherwise others do
  /// (Dispatch::covered_by); these and `uses`.
  Uses few = {};
  bool holds_routes = false;  ///< of a router; see Routing
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

/// One call of an op; some ops record several commands.
struct Dispatch {
  Call what;
  RowSet rows = RowSet::kAll;  ///< that it computes
  Part part = Part::kEmbedding;
  std::string label;  ///< "qkv", "rope_kv", "ffn_norm": for profiles
  std::optional<uint32_t> layer;
  /// The dispatch that may compute it of few rows (BoundCall::covers); the rows are the same.
  std::optional<uint32_t> covered_by = {};
};

struct Lowered {
  std::vector<Buffer> buffers;
  std::vector<Dispatch> dispatches;
  std::vector<std::vector<MatrixRows>> matrices;  ///< groups that write side by side
  std::vector<std::vector<TensorId>> vectors;     ///< each one after the other
  std::vector<AttentionClass> attention_classes;
  BufferId logits = 0;                  ///< [logit rows][n_vocab], or of embeddings their width
  std::optional<BufferId> given = {};   ///< of op::GivenRows: full before the first dispatch
  std::optional<BufferId> hidden = {};  ///< [rows][width], with Program::gives_hidden
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
