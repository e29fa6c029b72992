// Records GPU work with the ranges each command reads and writes, and derives the barriers.
//
// Commands between two barriers do not depend on one another and may run in any order. Recording
// cannot fail; `finish` only asks the driver for command-buffer memory.
#pragma once

#include <array>
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
  uint32_t x = 1;
  uint32_t y = 1;
  uint32_t z = 1;
};

/// How commands are put into the command buffer. Anything but the defaults is for tests.
struct RecorderOptions {
  static constexpr size_t kKeepAll = static_cast<size_t>(-1);
  bool reverse_unordered = false;  ///< emit commands that no barrier separates in reverse order
  size_t drop_barrier = kKeepAll;  ///< leave out the barrier of this index
  bool timestamps = false;         ///< time every command by itself (see profiler.hpp)
  bool time_span = false;          ///< time from the first command's start to the last one's end
};

/// Which part of a model's step commands belong to, for profiles and tests.
struct Scope {
  static constexpr uint32_t kNoLayer = static_cast<uint32_t>(-1);
  std::string_view part = {};  ///< "qkv", "rope_kv"; outlives what is recorded
  uint32_t layer = kNoLayer;
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

/// Command buffers ready to submit, one per segment. May be submitted any number of times, but not
/// again before the earlier submission is done. Move-only; destroyed while it runs, it is retired.
class RecordedWork {
 public:
  struct Segment {
    VkCommandBuffer commands = VK_NULL_HANDLE;
    Cost cost;
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

 private:
  friend class Recorder;
  void release();
  /// Timestamps 2i and 2i + 1, since timestamp 0.
  Result<std::vector<CommandTime>> query_pairs(size_t n_pairs) const;

  std::shared_ptr<Device> device_;
  VkCommandPool pool_ = VK_NULL_HANDLE;
  VkQueryPool queries_ = VK_NULL_HANDLE;
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

  /// The work so far may be submitted by itself: a new segment starts here.
  void cut();

  /// Put everything into command buffers and start afresh. The work waits for all submitted before
  /// it, and what it wrote is visible to the host when it is done. Errors: out of memory, device
  /// loss.
  Result<RecordedWork> finish();

 private:
  enum class Kind { kDispatch, kCopy, kFill, kCut };
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

  /// Append a command; a barrier goes before it if it conflicts with anything since the last one.
  void add(Command command, std::span<const Access> accesses);
  void emit_barrier(VkCommandBuffer commands) const;
  void emit(const Command& command, VkCommandBuffer commands) const;

  std::shared_ptr<Device> device_;
  RecorderOptions options_;
  Scope scope_;
  std::vector<Command> commands_;
  std::vector<Access> since_barrier_;
};

/// Submit all segments at once and wait for them.
Status run(Device& device, const RecordedWork& work);

}  // namespace pumice::vk
