// Fields of a JSON record that somebody else wrote: right type and range, or an error that names
// them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace pumice::bench {

class RecordReader {
 public:
  /// `where` begins every message: "a.json: record 3". The record must outlive this.
  RecordReader(const nlohmann::json& record, std::string where)
      : record_(record), where_(std::move(where)) {}

  bool has(const char* key) const { return record_.contains(key) && !record_[key].is_null(); }
  const nlohmann::json& operator[](const char* key) const { return record_[key]; }
  const std::string& where() const { return where_; }

  /// Absent: `fallback`. Made printable and cut to a bounded length.
  Result<std::string> text(const char* key, const std::string& fallback = "") const;
  /// Absent: 0. Finite, not negative, at most 1e18.
  Result<double> number(const char* key) const;
  /// Absent: empty. Positive numbers.
  Result<std::vector<double>> samples(const char* key) const;
  /// Absent: empty. An array of anything.
  Result<const nlohmann::json*> array(const char* key) const;
  /// Absent: an empty object.
  Result<RecordReader> object(const char* key) const;

  Error error(const char* key, std::string_view must) const;

 private:
  const nlohmann::json& record_;
  std::string where_;
};

}  // namespace pumice::bench
