// The recorded devices of tests/vk/snapshots. Each names the report it was taken from.
#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "base/check.hpp"
#include "tests/paths.hpp"
#include "tests/vk/snapshot_reader.hpp"

namespace pumice::test {

inline std::filesystem::path snapshot_folder() { return source_path("tests/vk/snapshots"); }

/// The names of every recorded device.
inline std::set<std::string> snapshot_names() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(snapshot_folder())) {
    names.insert(entry.path().stem().string());
  }
  return names;
}

inline nlohmann::json snapshot_json(const std::string& name) {
  std::ifstream file(snapshot_folder() / (name + ".json"));
  return nlohmann::json::parse(file);
}

inline vk::DeviceSnapshot snapshot(const std::string& name) {
  auto snapshot = snapshot_from_json(snapshot_json(name));
  PUMICE_CHECK(snapshot.ok(), name + ": " + snapshot.error().message);
  return *snapshot;
}

}  // namespace pumice::test
