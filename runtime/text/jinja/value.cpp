#include "text/jinja/value.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "text/jinja/code_points.hpp"

namespace pumice::jinja {
namespace {

constexpr size_t kIndexedDictEntries = 8;
// What an item costs beyond the bytes of its text: the value and its share of counters.
constexpr size_t kItemBytes = 64;

bool equal_lists(Budget& budget, const ListData& a, const ListData& b) {
  if (a.kind != b.kind || a.items.size() != b.items.size()) return false;
  if (a.kind == ListKind::kGenerator) return &a == &b;
  for (size_t i = 0; i < a.items.size(); ++i) {
    if (!equal(budget, a.items[i], b.items[i])) return false;
  }
  return true;
}

bool equal_dicts(Budget& budget, const DictData& a, const DictData& b) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const Value* other = b.find(budget, key);
    if (other == nullptr || !equal(budget, value, *other)) return false;
  }
  return true;
}

bool equal_numbers(const Value& a, const Value& b) {
  const std::optional<int64_t> x = a.integer();
  const std::optional<int64_t> y = b.integer();
  return x && y ? *x == *y : a.number() && b.number() && *a.number() == *b.number();
}

}  // namespace

int depth_above(Budget& budget, const std::vector<Value>& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  if (depth + 1 > kMaxDepth) budget.exceed("nests values too deeply");
  return depth + 1;
}

Value Value::undefined(std::string why) {
  Value value;
  value.data_ = Undefined{std::make_shared<const std::string>(std::move(why))};
  return value;
}

Value Value::literal(std::string text) {
  return Value(std::shared_ptr<const StringData>(
      new StringData{.text = std::move(text), .charge = Charge(nullptr, 0)}));
}

const std::string* Value::string() const {
  const auto* data = std::get_if<std::shared_ptr<const StringData>>(&data_);
  return data == nullptr ? nullptr : &(*data)->text;
}

const ListData* Value::list() const {
  const auto* data = std::get_if<std::shared_ptr<const ListData>>(&data_);
  return data == nullptr ? nullptr : data->get();
}

const DictData* Value::dict() const {
  const auto* data = std::get_if<std::shared_ptr<const DictData>>(&data_);
  return data == nullptr ? nullptr : data->get();
}

Object* Value::object() const {
  const auto* data = std::get_if<std::shared_ptr<Object>>(&data_);
  return data == nullptr ? nullptr : data->get();
}

std::optional<int64_t> Value::integer() const {
  if (const bool* value = std::get_if<bool>(&data_)) return *value ? 1 : 0;
  if (const int64_t* value = std::get_if<int64_t>(&data_)) return *value;
  return std::nullopt;
}

std::optional<double> Value::number() const {
  if (const double* value = std::get_if<double>(&data_)) return *value;
  if (const std::optional<int64_t> value = integer()) return static_cast<double>(*value);
  return std::nullopt;
}

int Value::depth() const {
  if (const ListData* values = list()) return values->depth;
  if (const DictData* values = dict()) return values->depth;
  return object() == nullptr ? 0 : object()->depth();
}

bool Value::same_as(const Value& other) const {
  if (data_.index() != other.data_.index()) return false;
  if (const std::string* text = string()) return *text == *other.string();
  if (is_none() || is_undefined()) return true;
  if (integer()) return integer() == other.integer();
  if (is_float()) return number() == other.number();
  return list() == other.list() && dict() == other.dict() && object() == other.object();
}

const Value* DictData::find(Budget& budget, const Value& key) const {
  if (by_hash.empty()) {
    for (const auto& [own, value] : entries) {
      if (equal(budget, own, key)) return &value;
    }
    return nullptr;
  }
  if (key.string() != nullptr) budget.scan(key.string()->size());
  const auto [first, last] = by_hash.equal_range(hash_of(key));
  for (auto at = first; at != last; ++at) {
    if (equal(budget, entries[at->second].first, key)) return &entries[at->second].second;
  }
  return nullptr;
}

const Value* DictData::find(std::string_view key) const {
  const auto is_key = [&](size_t i) {
    const std::string* own = entries[i].first.string();
    return own != nullptr && *own == key;
  };
  if (by_hash.empty()) {
    for (size_t i = 0; i < entries.size(); ++i) {
      if (is_key(i)) return &entries[i].second;
    }
    return nullptr;
  }
  const auto [first, last] = by_hash.equal_range(std::hash<std::string_view>()(key));
  for (auto at = first; at != last; ++at) {
    if (is_key(at->second)) return &entries[at->second].second;
  }
  return nullptr;
}

Result<Value> Object::call(Interpreter&, const Arguments&) {
  return fail("'{}' object is not callable", type_name());
}

std::optional<Value> Object::attribute(Interpreter&, std::string_view) { return std::nullopt; }

Value make_string(Budget& budget, std::string text) {
  const size_t n_bytes = text.size() + kItemBytes;
  budget.scan(n_bytes);
  return Value(std::shared_ptr<const StringData>(
      new StringData{.text = std::move(text), .charge = Charge(&budget, n_bytes)}));
}

Value make_list(Budget& budget, std::vector<Value> items, ListKind kind, std::string label) {
  const int depth = depth_above(budget, items);
  const size_t n_bytes = (items.size() + 1) * kItemBytes;
  budget.step(1 + items.size());
  return Value(std::shared_ptr<const ListData>(new ListData{.kind = kind,
                                                            .items = std::move(items),
                                                            .label = std::move(label),
                                                            .depth = depth,
                                                            .charge = Charge(&budget, n_bytes)}));
}

Value make_dict(Budget& budget, DictEntries entries) {
  int depth = 0;
  for (const auto& [key, value] : entries) {
    depth = std::max({depth, value.depth(), key.depth()});
  }
  if (depth + 1 > kMaxDepth) budget.exceed("nests values too deeply");
  const size_t n_bytes = (2 * entries.size() + 1) * 2 * kItemBytes;
  budget.step(1 + entries.size());
  std::shared_ptr<DictData> dict(
      new DictData{.depth = depth + 1, .charge = Charge(&budget, n_bytes)});
  const bool indexed = entries.size() > kIndexedDictEntries;
  for (auto& [key, value] : entries) {
    if (const Value* known = dict->find(budget, key)) {
      *const_cast<Value*>(known) = std::move(value);
      continue;
    }
    if (indexed) dict->by_hash.emplace(hash_of(key), dict->entries.size());
    dict->entries.emplace_back(std::move(key), std::move(value));
  }
  return Value(std::shared_ptr<const DictData>(std::move(dict)));
}

bool is_true(const Value& value) {
  if (value.is_none() || value.is_undefined()) return false;
  if (const std::optional<double> number = value.number()) return *number != 0;
  if (const std::string* text = value.string()) return !text->empty();
  if (const ListData* list = value.list()) {
    return list->kind == ListKind::kGenerator || !list->items.empty();
  }
  if (const DictData* dict = value.dict()) return !dict->entries.empty();
  return true;
}

bool equal(Budget& budget, const Value& a, const Value& b) {
  budget.step();
  if (budget.exhausted()) return false;
  if (a.number() && b.number()) return equal_numbers(a, b);
  if (a.data().index() != b.data().index()) return false;
  if (const std::string* text = a.string()) {
    budget.scan(text->size() == b.string()->size() ? text->size() : 0);
    return *text == *b.string();
  }
  if (const ListData* list = a.list()) return equal_lists(budget, *list, *b.list());
  if (const DictData* dict = a.dict()) return equal_dicts(budget, *dict, *b.dict());
  return a.same_as(b);
}

Result<bool> less(Budget& budget, const Value& a, const Value& b) {
  budget.step();
  PUMICE_TRY_STATUS(budget.status());
  if (const auto x = a.integer(), y = b.integer(); x && y) return *x < *y;
  if (a.number() && b.number()) return *a.number() < *b.number();
  if (a.string() != nullptr && b.string() != nullptr) {
    budget.scan(std::min(a.string()->size(), b.string()->size()));
    return *a.string() < *b.string();  // bytes of UTF-8 are in the order of code points
  }
  const ListData* x = a.list();
  const ListData* y = b.list();
  const bool sequences = x != nullptr && y != nullptr && x->kind == y->kind &&
                         (x->kind == ListKind::kList || x->kind == ListKind::kTuple);
  if (a.is_undefined()) return fail("{}", *a.undefined()->why);
  if (b.is_undefined()) return fail("{}", *b.undefined()->why);
  if (!sequences) {
    return fail("'<' not supported between instances of '{}' and '{}'", type_name(a), type_name(b));
  }
  for (size_t i = 0; i < std::min(x->items.size(), y->items.size()); ++i) {
    if (!equal(budget, x->items[i], y->items[i])) return less(budget, x->items[i], y->items[i]);
  }
  return x->items.size() < y->items.size();
}

bool is_hashable(const Value& value) {
  if (value.dict() != nullptr) return false;
  const ListData* list = value.list();
  if (list == nullptr || list->kind != ListKind::kTuple) return list == nullptr;
  return std::all_of(list->items.begin(), list->items.end(), is_hashable);
}

size_t hash_of(const Value& value) {
  if (const std::string* text = value.string()) return std::hash<std::string_view>()(*text);
  if (const std::optional<double> number = value.number()) return std::hash<double>()(*number);
  if (const ListData* list = value.list()) return 1000003 + list->items.size();
  return value.data().index();
}

std::string_view type_name(const Value& value) {
  if (value.is_none()) return "NoneType";
  if (value.is_undefined()) return "Undefined";
  if (value.is_bool()) return "bool";
  if (value.is_int()) return "int";
  if (value.is_float()) return "float";
  if (value.string() != nullptr) return "str";
  if (value.dict() != nullptr) return "dict";
  if (value.object() != nullptr) return value.object()->type_name();
  switch (value.list()->kind) {
    case ListKind::kList:
      return "list";
    case ListKind::kTuple:
      return "tuple";
    case ListKind::kRange:
      return "range";
    case ListKind::kView:
      return value.list()->label;
    case ListKind::kGenerator:
      return "generator";
  }
  return "object";
}

Result<std::vector<Value>> items_of(Budget& budget, const Value& value) {
  std::vector<Value> items;
  if (value.is_undefined()) return items;
  if (const ListData* list = value.list()) {
    budget.step(list->items.size());
    if (list->consumed) return items;
    list->consumed = list->kind == ListKind::kGenerator;
    return list->items;
  }
  if (const DictData* dict = value.dict()) {
    budget.step(dict->entries.size());
    for (const auto& [key, unused] : dict->entries) items.push_back(key);
    return items;
  }
  if (const std::string* text = value.string()) {
    // Each character becomes a value of its own.
    if (!budget.allows(text->size())) return budget.status().error();
    for (std::string_view rest = *text; !rest.empty() && !budget.exhausted();) {
      const size_t length = code_point_bytes(rest);
      items.push_back(make_string(budget, std::string(rest.substr(0, length))));
      rest.remove_prefix(length);
    }
    PUMICE_TRY_STATUS(budget.status());
    return items;
  }
  return fail("'{}' object is not iterable", type_name(value));
}

}  // namespace pumice::jinja
