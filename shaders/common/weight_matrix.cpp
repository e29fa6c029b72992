#include "shaders/common/weight_matrix.hpp"

#include <algorithm>
#include <thread>

#include "base/parallel.hpp"
#include "format/resident_layout.hpp"
#include "shaders/common/weight_ranges.hpp"

namespace pumice {
namespace {

constexpr uint64_t kMaxPartGroups = 65535;  // workgroups every device dispatches in a dimension
constexpr uint64_t kWriteBytes = 8 << 20;  // of one Uploader::write, which sizes the staging buffer
constexpr uint64_t kMaxThreads = 16;
constexpr uint64_t kThreadBytes = 256 << 10;  // a thread is started for no less

Status check(std::span<const WeightSource> sources) {
  if (!can_stack(sources)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "weights to stack need one type, one width and multiples of {} rows",
                      kRowGroup);
  }
  for (const WeightSource& source : sources) {
    const WeightType& type = *source.type;
    if (!type.has_codec()) {
      return make_error(ErrorCode::kInvalidArgument, "weights of type {} are not supported",
                        type.name);
    }
    if (source.n_rows == 0 || source.n_cols == 0 || source.n_cols % type.block_elements != 0 ||
        source.n_cols % 4 != 0) {
      return make_error(ErrorCode::kInvalidArgument,
                        "{} weights of {} rows and {} columns: columns must be a multiple of {}",
                        type.name, source.n_rows, source.n_cols, std::max(4u, type.block_elements));
    }
    const uint64_t expected = source.file_bytes();
    if (!source.fill && source.bytes.size() != expected) {
      return make_error(ErrorCode::kInvalidArgument,
                        "{} weights of {} rows and {} columns are {} bytes, got {}", type.name,
                        source.n_rows, source.n_cols, expected, source.bytes.size());
    }
  }
  return {};
}

/// Repack row groups [first, first + count) of a source.
Status repack_source(const WeightSource& source, uint64_t first, uint64_t count,
                     std::byte* destination) {
  const WeightType& type = *source.type;
  if (!source.fill) {
    repack(type, source.bytes.data(), source.n_rows, source.n_cols, first, count, destination);
    return {};
  }
  const uint64_t row_blocks = source.n_cols / type.block_elements;
  std::vector<std::byte> blocks;  // of one group, which the nearest caches hold
  for (uint64_t group = first; group < first + count; ++group) {
    const uint64_t first_row = group * kRowGroup;
    const uint64_t n_rows = std::min<uint64_t>(kRowGroup, source.n_rows - first_row);
    blocks.resize(n_rows * row_blocks * type.block_bytes);
    PUMICE_TRY_STATUS(source.fill(first_row * row_blocks, blocks));
    repack(type, blocks.data(), n_rows, source.n_cols, 0, 1, destination);
    destination += row_group_bytes(type, source.n_cols);
  }
  return {};
}

/// Repack row groups [first, first + count) of the stack to `destination`.
Status repack_stack(std::span<const WeightSource> sources, uint64_t first, uint64_t count,
                    std::byte* destination) {
  for (const WeightSource& source : sources) {
    const uint64_t groups = n_row_groups(source.n_rows);
    if (first < groups) {
      const uint64_t here = std::min(count, groups - first);
      PUMICE_TRY_STATUS(repack_source(source, first, here, destination));
      destination += here * row_group_bytes(*source.type, source.n_cols);
      first += here;
      count -= here;
      if (count == 0) break;
    }
    first -= groups;
  }
  return {};
}

/// The same, each of several threads a share of the groups.
Status repack_on_threads(std::span<const WeightSource> sources, uint64_t first, uint64_t count,
                         uint64_t group_bytes, std::byte* destination) {
  const uint64_t most = std::min<uint64_t>(kMaxThreads, count * group_bytes / kThreadBytes);
  const uint64_t n_threads =
      std::clamp<uint64_t>(std::thread::hardware_concurrency(), 1, std::max<uint64_t>(most, 1));
  const uint64_t share = (count + n_threads - 1) / n_threads;
  return for_each_on_threads((count + share - 1) / share, n_threads, [&](size_t i) {
    const uint64_t done = i * share;
    return repack_stack(sources, first + done, std::min(share, count - done),
                        destination + done * group_bytes);
  });
}

}  // namespace

bool can_stack(std::span<const WeightSource> sources) {
  return !sources.empty() && std::ranges::all_of(sources, [&](const auto& source) {
    return source.type == sources[0].type && source.n_cols == sources[0].n_cols &&
           (sources.size() == 1 || source.n_rows % kRowGroup == 0);
  });
}

WeightMatrix WeightMatrix::rows(uint32_t first, uint32_t n) const {
  PUMICE_CHECK(first % kRowGroup == 0 && uint64_t{first} + n <= n_rows &&
                   (n % kRowGroup == 0 || first + n == n_rows),
               "rows of a matrix are whole groups");
  WeightMatrix view{.type = type, .n_rows = n, .n_cols = n_cols, .grid = grid};
  for (const WeightMatrixPart& part : parts) {
    const uint32_t begin = std::max(part.first_row, first);
    const uint32_t end = std::min(part.first_row + part.n_rows, first + n);
    if (begin >= end) continue;
    view.parts.push_back(rows_of(part, begin, end - begin));
    view.parts.back().first_row -= first;
  }
  return view;
}

WeightMatrixPart WeightMatrix::rows_of(const WeightMatrixPart& part, uint32_t first,
                                       uint32_t n) const {
  const uint64_t group_bytes = row_group_bytes(*type, n_cols);
  const uint64_t first_group = (first - part.first_row) / kRowGroup;
  return {.range = part.range.subrange(first_group * group_bytes, n_row_groups(n) * group_bytes),
          .first_row = first,
          .n_rows = n};
}

uint64_t WeightMatrix::resident_bytes(std::span<const WeightSource> sources) {
  uint64_t bytes = sources.empty() ? 0 : sources[0].type->grid.size_bytes();
  for (const WeightSource& source : sources) {
    bytes += pumice::resident_bytes(*source.type, source.n_rows, source.n_cols);
  }
  return bytes;
}

uint64_t WeightMatrix::groups_of_part(const WeightType& type, uint32_t n_cols,
                                      uint64_t part_bytes) {
  return std::min(part_bytes / row_group_bytes(type, n_cols), kMaxPartGroups);
}

std::vector<uint64_t> weight_ranges(const WeightType& type, uint32_t n_rows, uint32_t n_cols,
                                    uint64_t part_bytes) {
  std::vector<uint64_t> ranges;
  if (!type.grid.empty()) ranges.push_back(type.grid.size_bytes());
  const uint64_t most =
      std::max<uint64_t>(1, WeightMatrix::groups_of_part(type, n_cols, part_bytes));
  for (uint64_t left = n_row_groups(n_rows); left > 0; left -= std::min(left, most)) {
    ranges.push_back(std::min(left, most) * row_group_bytes(type, n_cols));
  }
  return ranges;
}

Result<WeightMatrix> WeightMatrix::upload(vk::Uploader& uploader, vk::Arena& arena,
                                          std::span<const WeightSource> sources,
                                          uint64_t part_bytes) {
  PUMICE_TRY_STATUS(check(sources));
  WeightMatrix matrix{.type = sources[0].type, .n_cols = sources[0].n_cols};
  for (const WeightSource& source : sources) matrix.n_rows += source.n_rows;

  const uint64_t group_bytes = row_group_bytes(*matrix.type, matrix.n_cols);
  if (group_bytes > part_bytes) {
    return make_error(ErrorCode::kDoesNotFit,
                      "{} rows of {} {} weights are {} bytes, above the device's {} an allocation",
                      kRowGroup, matrix.n_cols, matrix.type->name, group_bytes, part_bytes);
  }
  const uint64_t write_groups = std::max<uint64_t>(1, kWriteBytes / group_bytes);
  uint64_t first = 0;  // group of rows
  for (const uint64_t bytes :
       weight_ranges(*matrix.type, matrix.n_rows, matrix.n_cols, part_bytes)) {
    PUMICE_TRY(const vk::BufferRange range, arena.allocate(bytes));
    if (matrix.grid.empty() && !matrix.type->grid.empty()) {
      matrix.grid = range;
      PUMICE_TRY_STATUS(uploader.write(matrix.grid, matrix.type->grid));
      continue;
    }
    const uint64_t count = bytes / group_bytes;
    const uint32_t first_row = static_cast<uint32_t>(first * kRowGroup);
    WeightMatrixPart part{.range = range,
                          .first_row = first_row,
                          .n_rows = static_cast<uint32_t>(
                              std::min<uint64_t>(count * kRowGroup, matrix.n_rows - first_row))};
    for (uint64_t done = 0; done < count; done += write_groups) {
      const uint64_t now = std::min(write_groups, count - done);
      Status read;
      const auto produce = [&](std::span<std::byte> destination) {
        read = repack_on_threads(sources, first + done, now, group_bytes, destination.data());
      };
      const vk::BufferRange target = part.range.subrange(done * group_bytes, now * group_bytes);
      PUMICE_TRY_STATUS(uploader.write(target, produce));
      PUMICE_TRY_STATUS(read);
    }
    matrix.parts.push_back(part);
    first += count;
  }
  return matrix;
}

}  // namespace pumice
