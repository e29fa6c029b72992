#include "text/jinja/context.hpp"

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

namespace pumice::jinja {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kBytesBesideText = 8;  // quotes, a comma, a number

class Reader {
 public:
  explicit Reader(Budget& budget) : budget_(budget) {}

  Result<Value> value_of(const Json& json, int depth) {
    if (depth > kMaxDepth) {
      return make_error(ErrorCode::kDoesNotFit,
                        "the template's values are nested more than {} deep", kMaxDepth);
    }
    budget_.step();
    n_bytes_ += kBytesBesideText;
    switch (json.type()) {
      case Json::value_t::boolean:
        return Value(json.get<bool>());
      case Json::value_t::number_integer:
        return Value(json.get<int64_t>());
      case Json::value_t::number_unsigned: {
        const auto number = json.get<uint64_t>();
        if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
          return make_error(ErrorCode::kInvalidArgument, "{} has more than 64 bits", number);
        }
        return Value(static_cast<int64_t>(number));
      }
      case Json::value_t::number_float:
        return Value(json.get<double>());
      case Json::value_t::string:
        return text_of(json.get_ref<const std::string&>());
      case Json::value_t::array: {
        Values items(budget_);
        items.reserve(json.size());
        for (const Json& item : json) {
          PUMICE_TRY(Value value, value_of(item, depth + 1));
          items.push_back(std::move(value));
        }
        return make_list(std::move(items));
      }
      case Json::value_t::object: {
        Entries entries(budget_);
        entries.reserve(json.size());
        for (const auto& [name, item] : json.get_ref<const Json::object_t&>()) {
          PUMICE_TRY(Value value, value_of(item, depth + 1));
          entries.emplace_back(text_of(name), std::move(value));
        }
        return make_dict(std::move(entries));
      }
      default:
        return Value();
    }
  }
  size_t n_bytes() const { return n_bytes_; }

 private:
  Value text_of(const std::string& text) {
    n_bytes_ += text.size();
    return Value::borrowed(text);
  }

  Budget& budget_;
  size_t n_bytes_ = 0;
};

}  // namespace

Result<Context> context_of(Budget& budget, const Json& json) {
  Reader reader(budget);
  try {
    PUMICE_TRY(Value value, reader.value_of(json, 1));
    return Context{std::move(value), reader.n_bytes()};
  } catch (const Exhausted& exhausted) {
    return exhausted.error;
  }
}

}  // namespace pumice::jinja
