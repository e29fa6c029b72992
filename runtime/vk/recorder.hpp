// Records GPU work with the ranges each command reads and writes, and derives the barriers.
//
// Commands between two barriers do not depend on one another and may run in any order. Recording
// cannot fail; `finish` only asks the driver for command-buffer memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "vk/device.hpp"
#include "vk/memory.hpp"
#include "vk/pipeline.hpp"

namespace pumice::vk {

enum class AccessMode { kRead, kWrite, kReadWrite };

/// A range a command touches: all of it or, with a stride, only its first `width_bytes` of every
/// `stride_bytes` (columns of a row-major matrix, which other columns do not conflict with).
struct Access {
  BufferRange range;
  AccessMode mode = AccessMode::kRead;
  uint64_t stride_bytes = 0;
  uint64_t width_bytes = 0;
  /// Writes of one group, if not null, are promised to touch different elements: dispatches that
  /// share out the rows of an output among themselves need no barrier between them.
  const void* disjoint_group = nullptr;
};

inline Access reads(const BufferRange& range) { return {range, AccessMode::kRead}; }
inline Access writes(const BufferRange& range) { return {range, AccessMode::kWrite}; }
inline Access writes_share(const BufferRange& range, const void* disjoint_group) {
  return {range, AccessMode::kWrite, 0, 0, disjoint_group};
}
inline Access updates(const BufferRange& range) { return {range, AccessMode::kReadWrite}; }

/// Whether two accesses must be ordered.
bool conflict(const Access& a, const Access& b);

/// Columns of a matrix of `rows` rows, the first row's of which start at `first_row`'s first byte.
inline Access writes_columns(const BufferRange& first_row, uint64_t rows, uint64_t stride_bytes,
                             uint64_t width_bytes) {
  return {first_row.subrange(0, (rows - 1) * stride_bytes + width_bytes), AccessMode::kWrite,
          stride_bytes, width_bytes};
}

/// The arithmetic a kernel does most of its flops in: which peak bounds it. Matrix ones are KHR
/// cooperative matrices, named by the type of their factors and of their sum.
enum class Arithmetic {
  kF32,
  kF16,
  kInt8Dot,
  kMatrixF16F16,
  kMatrixF16F32,
  kMatrixBf16F32,
  kMatrixS8S32,
};
inline constexpr size_t kArithmeticCount = 7;
std::string_view arithmetic_name(Arithmetic arithmetic);  ///< "f32", "matrix f16->f32"

/// What a command must move and compute at least: the numerators of GB/s and TFLOP/s.
struct Cost {
  uint64_t bytes = 0;
  uint64_t flops = 0;  ///< one multiply-add is two
  Arithmetic arithmetic = Arithmetic::kF32;

  /// Sums; the arithmetic stays the left side's.
  Cost& operator+=(const Cost& other) {
    bytes += other.bytes;
    flops += other.flops;
    return *this;
  }
};

struct Grid {
  /// Workgroups in a dimension that every device dispatches at once.
  static constexpr uint32_t kMost = 65535;

  uint32_t x = 1;
  uint32_t y = 1;
  uint32_t z = 1;
};

/// The most that the commands of a segment may cost together. A command that alone costs more is a
/// segment by itself.
struct SegmentLimit {
  static constexpr uint64_t kNone = UINT64_MAX;
  uint64_t bytes = kNone;
  uint64_t flops = kNone;
  /// What each command after the first counts for besides; less than 2^40.
  uint64_t command_bytes = 0;
  uint64_t command_flops = 0;

  bool holds(const Cost& cost, size_t n_commands = 1) const {
    const uint64_t n_more = n_commands - 1;
    return cost.bytes <= bytes && n_more * command_bytes <= bytes - cost.bytes &&
           cost.flops <= flops && n_more * command_flops <= flops - cost.flops;
  }
};

/// How commands are put into command buffers. At most one of the three kinds of times, none on a
/// device whose plan has no timestamp_valid_bits.
struct RecorderOptions {
  static constexpr size_t kKeepAll = static_cast<size_t>(-1);
  /// Emit commands that no barrier separates in reverse order. For tests.
  bool reverse_unordered = false;
  size_t drop_barrier = kKeepAll;  ///< leave out the barrier of this index; for tests
  bool timestamps = false;         ///< time every command by itself (see profiler.hpp)
  bool time_span = false;          ///< time from the first command's start to the last one's end
  bool time_segments = false;      ///< time every segment by itself
  SegmentLimit segment = {};
};

/// Which part of a model's step commands belong to, for profiles and tests.
struct Scope {
  static constexpr uint32_t kNoLayer = static_cast<uint32_t>(-1);
  static constexpr uint32_t kNoKind = static_cast<uint32_t>(-1);
  std::string_view part = {};  ///< "qkv", "rope_kv"; outlives what is recorded
  uint32_t layer = kNoLayer;
  uint32_t kind = kNoKind;  ///< a number of the recording module's: of a decoder, pumice::Part
};

/// A recorded command, for profiles and tests.
struct CommandInfo {
  std::string_view label;   ///< the pipeline's label, or "copy", "fill"
  std::string_view module;  ///< the pipeline's SPIR-V module; empty for copies and fills
  Cost cost;
  Scope scope = {};
};

/// When a command ran, by the device's clock.
struct CommandTime {
  double begin_ns = 0;
  double end_ns = 0;
};

/// Command buffers ready to submit, one per segment: all at once, or one after the other in their
/// order, at any time. May be submitted any number of times, each segment not again before its
/// earlier submission is done. Move-only; destroyed while it runs, it is retired.
class RecordedWork {
 public:
  struct Segment {
    VkCommandBuffer commands = VK_NULL_HANDLE;
    Cost cost = {};         ///< of all its commands
    size_t n_commands = 0;  ///< the next of `commands()`
  };

  RecordedWork() = default;
  ~RecordedWork();
  RecordedWork(RecordedWork&& other) noexcept;
  RecordedWork& operator=(RecordedWork&& other) noexcept;

  std::span<const Segment> segments() const { return segments_; }
  std::span<const CommandInfo> commands() const { return commands_; }
  size_t barrier_count() const { return barrier_count_; }

  /// Nanoseconds each command took, in the order of `commands()`; only with
  /// RecorderOptions::timestamps and after the work is done.
  Result<std::vector<double>> command_times_ns() const;

  /// When each of them began and ended, since the first began. The same conditions.
  Result<std::vector<CommandTime>> command_times() const;

  /// Nanoseconds from the start of the first command to the end of the last; only with
  /// RecorderOptions::time_span and after the work is done.
  Result<double> span_ns() const;

  /// Nanoseconds each segment took when it ran last: from when it was reached and all submitted
  /// before it was done, until it was done itself. So segments that overlap are not counted twice.
  /// Only with RecorderOptions::time_segments. Never waits: kInternal if a segment that was
  /// submitted is not done. Each must have been submitted once at least.
  Result<std::vector<double>> segment_times_ns() const;
  bool times_segments() const { return timed_ == Timed::kSegments; }

 private:
  friend class Recorder;
  /// What pairs of timestamps are of.
  enum class Timed { kNothing, kCommands, kSpan, kSegments };

  void release();
  /// 2 * n_pairs timestamps.
  Result<std::vector<uint64_t>> query_ticks(size_t n_pairs, VkQueryResultFlags wait) const;
  /// Pairs of timestamps, since the first of them.
  Result<std::vector<CommandTime>> query_pairs(size_t n_pairs) const;
  double ns_between(uint64_t earlier_ticks, uint64_t later_ticks) const;

  std::shared_ptr<Device> device_;
  VkCommandPool pool_ = VK_NULL_HANDLE;
  VkQueryPool queries_ = VK_NULL_HANDLE;
  Timed timed_ = Timed::kNothing;
  std::vector<Segment> segments_;
  std::vector<CommandInfo> commands_;
  size_t barrier_count_ = 0;
};

class Recorder {
 public:
  static constexpr size_t kMaxPushBytes = 128;

  explicit Recorder(std::shared_ptr<Device> device, RecorderOptions options = {});

  /// Run `pipeline` over `grid` workgroups. `push` is its push-constant struct.
  template <typename Push>
  void dispatch(const Pipeline& pipeline, const Push& push, Grid grid,
                std::initializer_list<Access> accesses, Cost cost) {
    dispatch_bytes(pipeline, std::as_bytes(std::span(&push, 1)), grid, {}, accesses, cost);
  }

  /// Like `dispatch`, with the grid read by the GPU from `grid` (three uint32) when it gets there;
  /// that read needs no access of its own.
  template <typename Push>
  void dispatch_indirect(const Pipeline& pipeline, const Push& push, const BufferRange& grid,
                         std::initializer_list<Access> accesses, Cost cost) {
    dispatch_bytes(pipeline, std::as_bytes(std::span(&push, 1)), {}, grid, accesses, cost);
  }

  /// Both of the above, untyped; `indirect` is the grid unless empty.
  void dispatch_bytes(const Pipeline& pipeline, std::span<const std::byte> push, Grid grid,
                      const BufferRange& indirect, std::initializer_list<Access> accesses,
                      Cost cost);

  /// Copy `source` to the start of `target`, which must be at least as large.
  void copy(const BufferRange& source, const BufferRange& target);

  /// Fill a range (a multiple of 4 bytes) with a word.
  void fill(const BufferRange& target, uint32_t word);

  /// What commands from now on belong to.
  void enter(const Scope& scope) { scope_ = scope; }

  /// What a segment may cost, for operations that can do their work in several dispatches.
  const SegmentLimit& segment_limit() const { return options_.segment; }

  /// Put everything into command buffers, a new one before each command with which the one before
  /// would exceed the segment limit, and start afresh. The work waits for all submitted before it,
  /// and what it wrote is visible to the host when its last segment is done. Errors: out of memory,
  /// device loss.
  Result<RecordedWork> finish();

 private:
  enum class Kind { kDispatch, kCopy, kFill };
  struct Command {
    Kind kind = Kind::kDispatch;
    const Pipeline* pipeline = nullptr;
    std::array<std::byte, kMaxPushBytes> push{};
    uint32_t push_bytes = 0;
    Grid grid;
    BufferRange indirect;  // kDispatch: the grid, if not empty; kCopy: the source
    BufferRange target;
    uint32_t fill_word = 0;
    Cost cost;
    Scope scope;
    bool barrier_before = false;
  };

  /// A command in its place, and the stages of the barrier before that place, if there is one.
  struct Emission {
    const Command* command = nullptr;
    VkPipelineStageFlags2 barrier_from = 0;
    VkPipelineStageFlags2 barrier_to = 0;
  };

  /// Append a command; a barrier goes before it if it conflicts with anything since the last one.
  void add(Command command, std::span<const Access> accesses);

  /// Commands as recorded, or each run between barriers reversed.
  std::vector<Emission> emission_order(size_t& barrier_count) const;
  RecordedWork::Timed timed() const;
  Status create_pools(RecordedWork& work) const;
  Status begin_segment(RecordedWork& work) const;
  Status end_segment(RecordedWork& work) const;
  void write_timestamp(const RecordedWork& work, size_t query) const;
  void emit_barrier(VkCommandBuffer commands, VkPipelineStageFlags2 from,
                    VkPipelineStageFlags2 to) const;
  static VkPipelineStageFlags2 stages_of(const Command& command);
  /// Into the last segment.
  void emit(const Emission& emission, RecordedWork& work) const;
  void emit(const Command& command, VkCommandBuffer commands) const;

  std::shared_ptr<Device> device_;
  RecorderOptions options_;
  Scope scope_;
  std::vector<Command> commands_;
  std::vector<Access> since_barrier_;
};

/// Submit all segments at once: the value of the device's timeline when they are done, until when
/// the work must be kept. Errors: those of Device::submit.
Result<uint64_t> submit(Device& device, const RecordedWork& work);
/// The same, and wait for them.
Status run(Device& device, const RecordedWork& work);

}  // namespace pumice::vk
