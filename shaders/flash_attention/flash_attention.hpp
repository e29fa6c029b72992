// Attention with online softmax over paged KV, causal over the whole context or a window of it, for
// ragged batches.
// Dao et al., "FlashAttention", 2022; split KV as in "Flash-Decoding", 2023; query heads that share
// a kv head go through one tile, so K and V are read once for them all. Windows as in Beltagy et
// al., "Longformer", 2020, on the past only; soft caps as in Gemma Team, "Gemma 2", 2024; sinks as
// in OpenAI, "gpt-oss", 2025.
#pragma once

#include <array>

#include "base/result.hpp"
#include "shaders/common/kv_layout.hpp"
#include "shaders/common/math.hpp"
#include "shaders/flash_attention/attention_plan.hpp"
#include "vk/memory.hpp"
#include "vk/pipeline.hpp"
#include "vk/recorder.hpp"

namespace pumice::ops {

class FlashAttention {
 public:
  struct Shape {
    uint32_t n_heads = 0;  ///< a multiple of n_kv_heads
    uint32_t n_kv_heads = 0;
    uint32_t head_dim = 0;  ///< a multiple of 8, at most 512; of a latent at most 1024
    KvTypes kv_type;
    /// Keys that a row sees, the one at its own position included; 0: all. The plan of the items
    /// says the same (AttentionPlanOptions::window).
    uint32_t window = 0;
    /// Scores, once scaled, become soft_cap * tanh(score / soft_cap); from 1e-3 to 1e6, or 0: they
    /// do not.
    float soft_cap = 0;
    /// Each head has a key without value: its score, neither scaled nor capped, only takes from the
    /// others' weights.
    bool sinks = false;
    /// There is no V: a key's first so many numbers, a multiple of 8 of at most 512, are its value.
    /// 0: values are as large as keys.
    uint32_t latent_dim = 0;
    /// Numbers of a value in V, a multiple of 8 of at most head_dim. 0: as many as a key has.
    uint32_t v_dim = 0;

    /// Numbers of a value, wherever it lies.
    uint32_t value_dim() const {
      return latent_dim != 0 ? latent_dim : v_dim != 0 ? v_dim : head_dim;
    }
  };

  enum class Path {
    kPortable,   ///< shared memory: works everywhere
    kBroadcast,  ///< registers and subgroup broadcasts; for CPU drivers
    kMatrix,     ///< cooperative matrices of f16 with f32 sums (matrix_tuning.hpp)
    kSubgroup,   ///< of single rows alone: subgroups share the keys out (subgroup_tuning.hpp)
  };

  /// What may be tuned. Rows of a tile are (token, head) pairs.
  struct Tuning {
    Path path = Path::kPortable;
    uint32_t workgroup_size = 64;  ///< keys of a KV tile; kPortable: 64 or 128
    uint32_t max_tile_rows = 16;   ///< a power of two, at most 16; halved until it fits
    // Of kMatrix only. Rows and keys of a tile are whole matrices.
    uint32_t key_tile = 0;
    uint32_t n_subgroups = 0;  ///< workgroup_size / subgroup size
    vk::MatrixShape matrix = {};
    /// Each subgroup has rows of its own, else the columns of all (flash_attention_matrix_rows.comp).
    bool own_rows = false;
    /// Single rows go through this kernel as tiles do, which makes a row's bits the same in tiles
    /// and alone. Else they are computed in fp32, as the device is tuned without matrices, or, of a
    /// tuning of single rows, spread over more workgroups than tiles are.
    bool matrix_rows = false;
    // Of kSubgroup only. max_tile_rows is that of lanes which have 8 columns of y.
    uint32_t subgroup_size = 0;
    uint32_t flight = 0;    ///< 16-byte loads of K, and of V, of a lane at once: a power of two
    uint32_t unroll = 0;    ///< octets of K of a loop's turn, a multiple of these
    bool shared_q = false;  ///< q is read from shared memory, else from where it lies
    /// Of the reduction: lanes, and how many partials each loads at a time; 0: as the device is
    /// tuned (attention_reduce in flash_attention.tune).
    uint32_t reduce_workgroup_size = 0;
    uint32_t reduce_flight = 0;
  };

  struct Args {
    vk::BufferRange q;  ///< float [row][q_stride], heads in order from column 0
    /// uint32 [row]: up to which position a row sees, its own where attention is causal. It may lie
    /// behind the last key.
    vk::BufferRange positions;
    /// uint64 [seq][table_stride]: addresses of KV blocks. Entries of blocks in which no row of an
    /// item sees a key are not read for it, so behind a window they may hold anything.
    vk::BufferRange block_table;
    vk::BufferRange kv;             ///< KV memory, or any part of it that rope_kv declares written
    vk::BufferRange items;          ///< AttentionItem [n_items]
    vk::BufferRange grid;           ///< grid_of(number of items), read by the GPU; empty: n_items
    vk::BufferRange y;              ///< float [row][y_stride], heads side by side
    vk::BufferRange partial_stats;  ///< partial_stats_bytes(slots); empty if no item has partials
    vk::BufferRange partial_y;      ///< partial_y_bytes(slots); likewise
    vk::BufferRange sinks = {};     ///< float [n_heads], where the shape has them
    vk::BufferRange carried = {};   ///< up to kCarriedBytes; see record_tiles
    uint32_t n_items = 0;
    uint32_t q_stride = 0;  ///< floats, a multiple of 4
    /// Likewise; n_heads * value_dim where items have partials. 0: that.
    uint32_t y_stride = 0;
    uint32_t table_stride = 0;
    uint32_t layer_offset_bytes = 0;  ///< KvLayout::layer_offset_bytes
    float scale = 0;                  ///< of scores, 1 / sqrt(head_dim)
    uint64_t keys = 0;                ///< AttentionPlan::tile_keys or row_keys; may be an estimate
    uint64_t scores = 0;              ///< AttentionPlan::tile_scores or row_scores; likewise
    uint32_t most_keys = 0;  ///< AttentionPlan::most_tile_keys or most_row_keys, if carried
  };

  struct ReduceArgs {
    vk::BufferRange items;  ///< AttentionReduceItem [n_items]
    vk::BufferRange grid;   ///< reduce_grid_of(number of items); empty: n_items
    vk::BufferRange partial_stats;
    vk::BufferRange partial_y;
    vk::BufferRange y;
    vk::BufferRange sinks = {};  ///< as Args::sinks
    uint32_t n_items = 0;
    uint32_t n_partials = 0;  ///< in all; may be an estimate
  };

  /// Errors: kInvalidArgument for a shape out of range, on any path.
  static Status check_shape(const Shape& shape);
  /// Whether the device can run Path::kBroadcast: broadcasts in subgroups of a known 8, 16 or 32.
  static bool broadcast_supported(const vk::DevicePlan& device);
  /// The fastest way to compute in fp32 (flash_attention.tune) whose module is not rejected.
  static Tuning tuned(const vk::PipelineLibrary& pipelines);

  /// Declare the three pipelines of a shape: "flash_attention.tile.f16", "flash_attention.row.f16"
  /// (or .f32, the type of KV; ".window" follows where there is one, ".matrix" on that path) and
  /// "attention_reduce". Errors: kInvalidArgument for a shape or tuning out of range.
  static Result<FlashAttention> plan(vk::PipelineLibrary& pipelines, const Shape& shape,
                                     const Tuning& tuning);
  /// The same; single rows as `row_tuning` says, which alone may be of kSubgroup. With that, and of
  /// kMatrix without `matrix_rows`, they are spread over more workgroups (row_splits).
  static Result<FlashAttention> plan(vk::PipelineLibrary& pipelines, const Shape& shape,
                                     const Tuning& tuning, const Tuning& row_tuning);

  /// Whether that of `math` is computed in fp16 on matrix cores: where they are and take the shape,
  /// but never with kF32.
  static bool takes_matrices(const vk::PipelineLibrary& pipelines, const Shape& shape, Math math);

  /// The same as `math` allows: on matrix cores, but never with kF32. Where the device has none, or
  /// none that take the shape, attention is fp32, and the log says why. Single rows are computed as
  /// attention_row of flash_attention.tune says; with kF32 they have the bits that they have in tiles.
  static Result<FlashAttention> plan(vk::PipelineLibrary& pipelines, const Shape& shape, Math math);

  /// Tokens one tile item may have; row items have one.
  uint32_t tile_tokens() const { return tile_.rows / tile_.heads; }

  /// AttentionPlanOptions::row_splits that keep the device busy (attention_splits of
  /// flash_attention.tune); 0 where single rows are computed as tiles are.
  uint32_t row_splits() const { return row_splits_; }

  /// kF16 on matrix cores, else kF32.
  Math tile_math() const { return tile_.math; }
  Math row_math() const { return row_.math; }

  /// Of tiles, single rows and the reduction.
  std::array<const vk::Pipeline*, 3> pipelines() const {
    return {tile_.pipeline, row_.pipeline, reduce_};
  }

  using GridWords = std::array<uint32_t, 3>;  // VkDispatchIndirectCommand
  GridWords tile_grid_of(uint32_t n_items) const { return grid_of(tile_, n_items); }
  GridWords row_grid_of(uint32_t n_items) const { return grid_of(row_, n_items); }
  GridWords reduce_grid_of(uint32_t n_items) const { return {n_items, shape_.n_heads, 1}; }

  uint64_t partial_stats_bytes(uint64_t n_slots) const { return n_slots * shape_.n_heads * 8; }
  uint64_t partial_y_bytes(uint64_t n_slots) const {
    return n_slots * shape_.n_heads * shape_.value_dim() * 4;
  }

  /// What workgroups carry from a dispatch over some of their keys to the next: no more is of use,
  /// and with less, fewer of them do so at once.
  static constexpr uint64_t kCarriedBytes = uint64_t{1} << 20;

  /// What the row items of a plan cost (AttentionPlan::row_keys and row_scores).
  vk::Cost row_cost(uint64_t keys, uint64_t scores) const { return cost_of(row_, keys, scores); }

  /// A list that costs more than the recorder's segment limit is cut into dispatches that do not:
  /// of whole items, of some heads, and where those would be too few to keep the device busy, of
  /// some of their keys, one KV tile of one workgroup at least. No bit differs: a workgroup goes on
  /// with the registers that the one before it has left in `carried`; without it an item has all
  /// its keys in one dispatch. The grids are then those of `args.n_items`, and not the GPU's to
  /// read.

  /// Several tokens an item (prefill).
  void record_tiles(vk::Recorder& recorder, const Args& args) const;
  /// One token an item (decode).
  void record_rows(vk::Recorder& recorder, const Args& args) const;
  /// Combine the partials of items that have them, after all of those.
  void record_reduce(vk::Recorder& recorder, const ReduceArgs& args) const;

 private:
  struct Tile {
    const vk::Pipeline* pipeline = nullptr;
    uint32_t rows = 1;
    uint32_t heads = 1;
    uint32_t keys = 0;           ///< of a KV tile
    uint32_t carried_bytes = 0;  ///< of a workgroup
    Math math = Math::kF32;
  };

  static Result<Tile> declare(vk::PipelineLibrary& pipelines, const Shape& shape,
                              const Tuning& tuning, bool single_rows);
  GridWords grid_of(const Tile& tile, uint32_t n_items) const;
  vk::Cost cost_of(const Tile& tile, uint64_t keys, uint64_t scores) const;
  void record(vk::Recorder& recorder, const Tile& tile, const Args& args) const;

  Shape shape_;
  Tile tile_;
  Tile row_;
  const vk::Pipeline* reduce_ = nullptr;
  uint32_t row_splits_ = 0;
  uint64_t most_carrying_ = 0;  ///< workgroups at once of which each has some of its keys
};

}  // namespace pumice::ops
