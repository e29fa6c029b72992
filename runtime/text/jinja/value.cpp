#include "text/jinja/value.hpp"

#include <algorithm>
#include <functional>

#include "text/jinja/code_points.hpp"

namespace pumice::jinja {
namespace {

constexpr size_t kIndexedDictEntries = 8;

bool equal_lists(Budget& budget, const ListData& a, const ListData& b) {
  if (&a == &b) return true;
  if (a.kind() != b.kind() || a.size() != b.size() || !a.has_length()) return false;
  const Values& x = a.items(budget);
  const Values& y = b.items(budget);
  for (size_t i = 0; i < x.size(); ++i) {
    if (!equal(budget, x[i], y[i])) return false;
  }
  return true;
}

bool equal_dicts(Budget& budget, const DictData& a, const DictData& b) {
  if (&a == &b) return true;
  if (a.size() != b.size()) return false;
  for (const auto& [key, value] : a.entries(budget)) {
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

void check_depth(int depth) {
  if (depth > kMaxDepth) Budget::exceed("nests values too deeply");
}

}  // namespace

int depth_above(const Values& items) {
  budget_of(items).walk(items.size());
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  check_depth(depth + 1);
  return depth + 1;
}

Value Value::undefined(Budget& budget, std::string_view why) {
  return Value(Data(Undefined{std::allocate_shared<StringData>(
      Paid<StringData>(budget), StringData{Text(why, budget), false})}));
}

const StringData* Value::string_data() const {
  const auto* data = std::get_if<std::shared_ptr<const StringData>>(&data_);
  return data == nullptr ? nullptr : data->get();
}

std::string_view Value::whole_text() const {
  if (const auto* text = std::get_if<std::string_view>(&data_)) return *text;
  const StringData* const data = string_data();
  return data == nullptr ? std::string_view() : data->text;
}

std::string_view Value::text(Budget& budget) const {
  const std::string_view text = whole_text();
  budget.scan(text.size());
  return text;
}

std::string_view Value::head(Budget& budget, size_t n_bytes) const {
  const std::string_view text = whole_text();
  budget.scan(std::min(n_bytes, text.size()));
  return text.substr(0, n_bytes);
}

std::string_view Value::tail(Budget& budget, size_t n_bytes) const {
  const std::string_view text = whole_text();
  budget.scan(std::min(n_bytes, text.size()));
  return text.substr(text.size() - std::min(n_bytes, text.size()));
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

Error Value::why_undefined() const {
  return fail("{}", std::string_view(std::get<Undefined>(data_).why->text));
}

int Value::depth() const {
  if (const ListData* values = list()) return values->depth();
  if (const DictData* values = dict()) return values->depth();
  return object() == nullptr ? 0 : object()->depth();
}

bool Value::same_as(Budget& budget, const Value& other) const {
  if (is_string()) {
    return other.is_string() && is_safe() == other.is_safe() && equal(budget, *this, other);
  }
  if (data_.index() != other.data_.index()) return false;
  if (is_none() || is_undefined()) return true;
  if (integer()) return integer() == other.integer();
  if (is_float()) return number() == other.number();
  return list() == other.list() && dict() == other.dict() && object() == other.object();
}

const Values* ListData::items_once(Budget& budget) const {
  if (consumed_) return nullptr;
  consumed_ = kind_ == ListKind::kGenerator;
  return &items(budget);
}

Value ListData::make(Values items, ListKind kind, Value label) {
  const int depth = depth_above(items);
  const Paid<ListData> paid = items.get_allocator();
  return Value(Value::Data(std::shared_ptr<const ListData>(
      std::allocate_shared<ListData>(paid, std::move(items), kind, std::move(label), depth))));
}

Value DictData::make(Entries entries) {
  Budget& budget = budget_of(entries);
  const std::shared_ptr<DictData> dict =
      std::allocate_shared<DictData>(Paid<DictData>(budget), budget);
  dict->entries_.reserve(entries.size());
  if (entries.size() > kIndexedDictEntries) {
    if (entries.size() >= UINT32_MAX) Budget::exceed("needs too much memory");
    size_t n_slots = 2 * kIndexedDictEntries;
    while (n_slots < 2 * entries.size()) n_slots *= 2;
    dict->slots_.assign(n_slots, 0);
  }
  const size_t mask = dict->slots_.size() - 1;
  for (auto& [key, value] : entries) {
    dict->depth_ = std::max({dict->depth_, value.depth() + 1, key.depth() + 1});
    if (const Value* known = dict->find(budget, key)) {
      *const_cast<Value*>(known) = std::move(value);
      continue;
    }
    if (dict->is_indexed()) {
      size_t slot = hash_of(budget, key) & mask;
      for (; dict->slots_[slot] != 0; slot = (slot + 1) & mask) budget.step();
      dict->slots_[slot] = static_cast<uint32_t>(dict->entries_.size() + 1);
    }
    dict->entries_.emplace_back(std::move(key), std::move(value));
  }
  check_depth(dict->depth_);
  return Value(Value::Data(std::shared_ptr<const DictData>(dict)));
}

const Value* DictData::find(Budget& budget, const Value& key) const {
  if (!is_indexed()) {
    for (const auto& [own, value] : entries_) {
      if (equal(budget, own, key)) return &value;
    }
    return nullptr;
  }
  const size_t mask = slots_.size() - 1;
  for (size_t slot = hash_of(budget, key) & mask; slots_[slot] != 0; slot = (slot + 1) & mask) {
    const auto& [own, value] = entries_[slots_[slot] - 1];
    if (equal(budget, own, key)) return &value;
  }
  return nullptr;
}

const Value* DictData::find(Budget& budget, std::string_view key) const {
  return find(budget, Value::borrowed(key));
}

const Value* Arguments::find(std::string_view name) const {
  budget_of(named).walk(named.size());
  for (const auto& argument : named) {
    if (argument.first == name) return &argument.second;
  }
  return nullptr;
}

Result<Value> Object::call(Interpreter&, const Arguments&) {
  return fail("'{}' object is not callable", type_name());
}

std::optional<Value> Object::attribute(Interpreter&, std::string_view) { return std::nullopt; }

Value make_string(Text text, bool is_safe) {
  const Paid<StringData> paid = text.get_allocator();
  return Value(Value::Data(std::shared_ptr<const StringData>(
      std::allocate_shared<StringData>(paid, StringData{std::move(text), is_safe}))));
}

bool is_true(const Value& value) {
  if (value.is_none() || value.is_undefined()) return false;
  if (const std::optional<double> number = value.number()) return *number != 0;
  if (value.is_string()) return value.n_bytes() > 0;
  if (const ListData* list = value.list()) return !list->has_length() || list->size() > 0;
  if (const DictData* dict = value.dict()) return dict->size() > 0;
  return true;
}

bool equal(Budget& budget, const Value& a, const Value& b) {
  budget.step();
  if (a.number() && b.number()) return equal_numbers(a, b);
  if (a.is_string() && b.is_string()) {
    return a.n_bytes() == b.n_bytes() && a.text(budget) == b.text(budget);
  }
  if (a.data_.index() != b.data_.index()) return false;
  if (const ListData* list = a.list()) return equal_lists(budget, *list, *b.list());
  if (const DictData* dict = a.dict()) return equal_dicts(budget, *dict, *b.dict());
  return a.same_as(budget, b);
}

Result<bool> less(Budget& budget, const Value& a, const Value& b) {
  budget.step();
  if (const auto x = a.integer(), y = b.integer(); x && y) return *x < *y;
  if (a.number() && b.number()) return *a.number() < *b.number();
  if (a.is_string() && b.is_string()) {
    // Bytes of UTF-8 are in the order of code points.
    const size_t n_bytes = std::min(a.n_bytes(), b.n_bytes());
    const int order = a.head(budget, n_bytes).compare(b.head(budget, n_bytes));
    return order != 0 ? order < 0 : a.n_bytes() < b.n_bytes();
  }
  const ListData* x = a.list();
  const ListData* y = b.list();
  const bool sequences =
      x != nullptr && y != nullptr && x->kind() == y->kind() && x->is_list_or_tuple();
  if (a.is_undefined()) return a.why_undefined();
  if (b.is_undefined()) return b.why_undefined();
  if (!sequences) {
    return fail("'<' not supported between instances of '{}' and '{}'", type_name(a), type_name(b));
  }
  for (size_t i = 0; i < std::min(x->size(), y->size()); ++i) {
    const Value& own = x->at(budget, i);
    const Value& other = y->at(budget, i);
    if (!equal(budget, own, other)) return less(budget, own, other);
  }
  return x->size() < y->size();
}

bool is_hashable(Budget& budget, const Value& value) {
  if (value.dict() != nullptr) return false;
  const ListData* list = value.list();
  if (list == nullptr || list->kind() != ListKind::kTuple) return list == nullptr;
  const Values& items = list->items(budget);
  return std::ranges::all_of(items, [&](const Value& item) { return is_hashable(budget, item); });
}

size_t hash_of(Budget& budget, const Value& value) {
  if (value.is_string()) return std::hash<std::string_view>()(value.text(budget));
  if (const std::optional<double> number = value.number()) return std::hash<double>()(*number);
  // Nested ones would have to be walked as a tree.
  if (const ListData* list = value.list()) return 1000003 + list->size();
  return value.data_.index();
}

std::string_view type_name(const Value& value) {
  if (value.is_none()) return "NoneType";
  if (value.is_undefined()) return "Undefined";
  if (value.is_bool()) return "bool";
  if (value.is_int()) return "int";
  if (value.is_float()) return "float";
  if (value.is_string()) return value.is_safe() ? "Markup" : "str";
  if (value.dict() != nullptr) return "dict";
  if (value.object() != nullptr) return value.object()->type_name();
  switch (value.list()->kind()) {
    case ListKind::kList:
      return "list";
    case ListKind::kTuple:
      return "tuple";
    case ListKind::kRange:
      return "range";
    case ListKind::kView:
      return value.list()->label_text();
    case ListKind::kGenerator:
      return "generator";
  }
  return "object";
}

Result<Values> items_of(Budget& budget, const Value& value) {
  Values items(budget);
  if (value.is_undefined()) return items;
  if (const ListData* list = value.list()) {
    if (const Values* own = list->items_once(budget)) items = *own;
    return items;
  }
  if (const DictData* dict = value.dict()) {
    items.reserve(dict->size());
    for (const auto& [key, unused] : dict->entries(budget)) items.push_back(key);
    return items;
  }
  if (value.is_string()) {
    // Each character becomes a value of its own.
    for (std::string_view rest = value.text(budget); !rest.empty();) {
      const size_t length = code_point_bytes(rest);
      items.push_back(copy_string(budget, rest.substr(0, length)));
      rest.remove_prefix(length);
    }
    return items;
  }
  return fail("'{}' object is not iterable", type_name(value));
}

Value soft_str(Budget& budget, const Value& value) {
  return value.is_string() ? value : make_string(str(budget, value));
}

}  // namespace pumice::jinja
