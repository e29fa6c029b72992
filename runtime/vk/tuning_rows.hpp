// Rows of tuning: speed as data. A table is a choice that an op has, a row a line of text:
//
//   # RADV 25.0, 2026-05-01: 4096 x 4096 of Q4_K 231 us, with 256 lanes 240.
//   gemv_subgroup if subgroup_max<128 use workgroup_size=512,256
//   gemm uniform if x=broadcast driver=mesa_llvmpipe driver_version>=26 use tile_rows=16
//
// that is the table's name, the choice if there are several, conditions that must all hold, and
// numbers. Of several values of a number, a row is made of each, in that order. "#" begins a
// comment: those of a row's own line and of the lines above it, up to a blank line, say where it
// comes from. A condition compares a fact of the device (device_facts) or of the shape (the
// table's): words by = and !=, sizes and versions by < <= > >= as well; several after = are
// alternatives (type=q4_k|q5_k). Vendors are no fact.
//
// A table is declared before its rows, in the file beside its op:
//
//   table gemm
//   choices shared i8                what rows choose; none: rows have numbers only
//   word math auto f32 f16 i8        a fact of the shape, and the words it may be; none: any
//   size head_dim                    a fact of the shape that is a number
//   number tile_rows of i8: 8 16 32  what rows of i8 must have, and which values are possible
//   number lane_cols: 1 2 4          the same of every row
//
// Everything here is plain data.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.hpp"
#include "vk/plan.hpp"

namespace pumice::vk {

/// "26.1.6"; a size is a version of one number.
using TuningSize = std::array<uint64_t, 3>;

/// What is known of a device and a shape.
class TuningFacts {
 public:
  using Value = std::variant<std::string, TuningSize>;

  TuningFacts& set(std::string_view name, std::string_view word);
  TuningFacts& set(std::string_view name, const TuningSize& version);
  TuningFacts& set(std::string_view name, uint64_t size) { return set(name, TuningSize{size}); }
  /// Those of `more` too.
  void add(const TuningFacts& more) { values_.insert(more.values_.begin(), more.values_.end()); }
  /// Null: nothing is known of it.
  const Value* find(std::string_view name) const;
  std::vector<std::string> names() const;
  /// As the conditions of a row that holds for these: "tile_rows=8 type=q4_k".
  std::string text() const;

 private:
  std::map<std::string, Value, std::less<>> values_;
};

/// Words: class ("gpu", "cpu"), driver (DriverFacts::name). Versions: driver_version. Sizes, those
/// that say yes or no being 1 or 0: subgroup, subgroup_min, subgroup_max, matrix_subgroup,
/// workgroup, workgroup_subgroups, shared_bytes, unified_memory, int8_dot, emulated_matrices.
TuningFacts device_facts(const DevicePlan& plan);

struct TuningCondition {
  enum class Comparison { kEqual, kNotEqual, kLess, kAtMost, kMore, kAtLeast };
  std::string fact;
  Comparison comparison = Comparison::kEqual;
  std::vector<TuningFacts::Value> values;  ///< several: alternatives of kEqual

  /// False where nothing is known of the fact, whatever the comparison.
  bool holds(const TuningFacts& facts) const;
};

struct TuningRow {
  std::string table;
  std::string choice;  ///< empty where the table has no choices
  std::vector<TuningCondition> conditions;
  std::vector<std::pair<std::string, uint32_t>> numbers;
  std::string provenance;
  std::string origin;  ///< "gemv.tune:12"
  std::string text;    ///< the line without its comment

  bool holds(const TuningFacts& facts) const;
  /// One that the table's declaration demands of such rows.
  uint32_t number(std::string_view name) const;
};

/// That an op chose a row of its table for a shape.
struct TuningChoice {
  TuningFacts shape;
  TuningRow row;
};

struct TuningTable {
  struct Number {
    std::string name;
    std::vector<std::string> choices;  ///< whose rows have it; empty: all
    std::vector<uint32_t> values;      ///< possible ones
  };

  std::string name;
  std::vector<std::string> choices;
  std::map<std::string, std::vector<std::string>, std::less<>> words;
  std::vector<std::string> sizes;
  std::vector<Number> numbers;
  std::vector<TuningRow> rows;

  bool has(const Number& number, std::string_view choice) const;
};

/// The tables of a file, which declares them. Errors: kBadFile naming the file, the line and what
/// is wrong with it.
Result<std::vector<TuningTable>> parse_tuning_tables(std::string_view file, std::string_view text);

/// The rows of a file that declares nothing, of these tables. Errors: as above.
Result<std::vector<TuningRow>> parse_tuning_rows(std::string_view file, std::string_view text,
                                                 std::span<const TuningTable> tables);

}  // namespace pumice::vk
