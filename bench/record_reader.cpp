#include "bench/record_reader.hpp"

#include "base/printable.hpp"

namespace pumice::bench {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxTextBytes = 500;
constexpr double kMaxNumber = 1e18;

}  // namespace

Error RecordReader::error(const char* key, std::string_view must) const {
  return make_error(ErrorCode::kBadFile, "{}: {} must be {}", where_, key, must);
}

Result<std::string> RecordReader::text(const char* key, const std::string& fallback) const {
  if (!has(key)) return fallback;
  const Json& value = record_[key];
  if (value.is_string()) return printable(value.get_ref<const std::string&>(), kMaxTextBytes);
  if (value.is_number() || value.is_boolean()) return value.dump();
  return error(key, "a string");
}

Result<double> RecordReader::number(const char* key) const {
  if (!has(key)) return 0.0;
  const Json& value = record_[key];
  const double number = value.is_number() ? value.get<double>() : -1;
  if (!(number >= 0 && number <= kMaxNumber)) return error(key, "a number from 0 to 1e18");
  return number;
}

Result<std::vector<double>> RecordReader::samples(const char* key) const {
  PUMICE_TRY(const Json* const values, array(key));
  std::vector<double> samples;
  samples.reserve(values->size());
  for (const Json& value : *values) {
    const double sample = value.is_number() ? value.get<double>() : 0;
    if (!(sample > 0 && sample <= kMaxNumber)) return error(key, "positive numbers");
    samples.push_back(sample);
  }
  return samples;
}

Result<const Json*> RecordReader::array(const char* key) const {
  static const Json kEmpty = Json::array();
  if (!has(key)) return &kEmpty;
  const Json& value = record_[key];
  if (!value.is_array()) return error(key, "an array");
  return &value;
}

Result<RecordReader> RecordReader::object(const char* key) const {
  static const Json kEmpty = Json::object();
  const std::string where = where_ + ": " + key;
  if (!has(key)) return RecordReader(kEmpty, where);
  const Json& value = record_[key];
  if (!value.is_object()) return error(key, "an object");
  return RecordReader(value, where);
}

}  // namespace pumice::bench
