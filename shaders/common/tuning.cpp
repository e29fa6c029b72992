#include "shaders/common/tuning.hpp"

#include <algorithm>
#include <utility>

#include "base/ascii.hpp"
#include "base/check.hpp"

namespace pumice::ops {
namespace {

std::vector<vk::TuningTable> parse_built_in_files() {
  std::vector<std::string> types;
  for (const WeightType& type : weight_types()) {
    if (type.has_codec()) types.push_back(tuning_word(type));
  }
  std::vector<vk::TuningTable> tables;
  for (const TuningFile& file : built_in_tuning_files()) {
    auto some = vk::parse_tuning_tables(file.name, file.text);
    PUMICE_CHECK(some.ok(), some.error().message);
    for (vk::TuningTable& table : *some) {
      const auto type = table.words.find("type");
      if (type != table.words.end()) type->second = types;
      tables.push_back(std::move(table));
    }
  }
  return tables;
}

}  // namespace

std::span<const vk::TuningTable> tuning_tables() {
  static const std::vector<vk::TuningTable> kTables = parse_built_in_files();
  return kTables;
}

std::string tuning_word(const WeightType& type) { return lower_case(type.name); }

std::vector<const vk::TuningRow*> tuning_rows(const TuningTarget& target, std::string_view table,
                                              vk::TuningFacts shape) {
  const auto known = std::ranges::find(tuning_tables(), table, &vk::TuningTable::name);
  PUMICE_CHECK(known != tuning_tables().end(), "no table of tuning has that name");
  shape.add(vk::device_facts(target.plan));
  std::vector<const vk::TuningRow*> rows;
  const auto add = [&](std::span<const vk::TuningRow> some) {
    for (const vk::TuningRow& row : some) {
      if (row.table == table && row.holds(shape)) rows.push_back(&row);
    }
  };
  add(target.preferred);
  add(known->rows);
  return rows;
}

const vk::TuningRow* choose_row(const TuningTarget& target, std::string_view table,
                                const vk::TuningFacts& shape, const TuningObstacle& obstacle) {
  for (const vk::TuningRow* row : tuning_rows(target, table, shape)) {
    const std::string reason = obstacle ? obstacle(*row) : "";
    if (reason.empty()) {
      if (target.library != nullptr) target.library->note({shape, *row});
      return row;
    }
    const bool preferred = std::ranges::any_of(
        target.preferred, [&](const vk::TuningRow& some) { return &some == row; });
    if (preferred && target.logger != nullptr) {
      target.logger->info("{} is not used: {}", row->origin, reason);
    }
  }
  return nullptr;
}

const vk::TuningRow& take_row(const TuningTarget& target, std::string_view table,
                              const vk::TuningFacts& shape, const TuningObstacle& obstacle) {
  const vk::TuningRow* row = choose_row(target, table, shape, obstacle);
  PUMICE_CHECK(row != nullptr,
               "a table of tuning has no row for this device: " + std::string(table));
  return *row;
}

}  // namespace pumice::ops
