#include "bench/layers.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>

namespace pumice::bench {
namespace {

constexpr uint32_t kNoLayer = vk::Scope::kNoLayer;

/// Two layers of two commands and one behind them; a microsecond each, half of one between them.
TracedStep step_at(double planned_s) {
  TracedStep step{.host = {.id = 7,
                           .decode_rows = 1,
                           .planned_s = planned_s,
                           .prepared_s = planned_s + 1e-6,
                           .recorded_s = planned_s + 3e-6,
                           .submitted_s = planned_s + 4e-6,
                           .ended_s = planned_s + 20e-6},
                  .n_barriers = 4,
                  .commands = {}};
  const vk::Cost cost{.bytes = 1000, .flops = 4000};
  double at = 0;
  const auto add = [&](const char* label, vk::Scope scope) {
    step.commands.push_back({label, std::string(scope.part), scope.layer, cost, {at, at + 1000}});
    at += 1500;
  };
  for (const uint32_t layer : {0u, 1u}) {
    add("gemv", {"qkv", layer});
    add("gemv", {"ffn_down", layer});
  }
  add("sampling", {"sampling", kNoLayer});
  return step;
}

LayersReport report() {
  LayersReport report{
      .model = {.type = "tiny"}, .n_layers = 2, .tests = {}, .peaks = {}, .ended = {}};
  report.model.run = {{"gpu_info", "a device"}};
  report.tests.push_back(
      {.test = {.n_gen = 2}, .steps = {step_at(5), step_at(5.001)}, .untraced = {}});
  report.tests.push_back({.test = {.n_prompt = 8}, .steps = {step_at(0.5)}, .untraced = {}});
  return report;
}

TEST(Layers, CommandsOfOnePartAndKernelAreARow) {
  Roofline roofline{.bytes_per_ns = 4};
  const std::vector<LayerRow> rows = layer_rows(report().tests[0], 2, roofline);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].part, "qkv");
  EXPECT_EQ(rows[1].part, "ffn_down");
  EXPECT_DOUBLE_EQ(rows[0].n_dispatches, 2);
  EXPECT_DOUBLE_EQ(rows[0].n_per_layer, 1);
  EXPECT_DOUBLE_EQ(rows[2].n_per_layer, 0);
  EXPECT_EQ(rows[0].cost.bytes, 2000u);
  EXPECT_EQ(rows[0].samples_ns, (std::vector<double>{2000, 2000}));
  EXPECT_DOUBLE_EQ(rows[0].limit.ns, 500);
  EXPECT_EQ(rows[0].limit.what, "bandwidth");
}

TEST(Layers, WhatIsBetweenCommandsIsIdle) {
  const TracedStep step = step_at(0);
  EXPECT_DOUBLE_EQ(step.device_ns(), 7000);
  EXPECT_DOUBLE_EQ(step.busy_ns(), 5000);
  const nlohmann::json json = to_json(report());
  EXPECT_NEAR(json["tests"][0]["idle_ns"][1].get<double>(), 2000, 1e-6);
  EXPECT_NEAR(json["tests"][0]["host_record_ns"][0].get<double>(), 2000, 1);
  EXPECT_NE(to_markdown(report()).find("| idle between dispatches |"), std::string::npos);
}

struct Event {
  std::string name;
  double begin_us;
  double end_us;
};

TEST(Trace, EventsAreCompleteNamedAndNestedAndDoNotOverlapOnATrack) {
  const nlohmann::json trace = trace_events(report());
  std::map<std::pair<int, int>, std::vector<Event>> tracks;
  std::map<std::pair<int, int>, std::string> names;
  for (const nlohmann::json& event : trace.at("traceEvents")) {
    const std::string phase = event.at("ph");
    if (phase == "M") {
      if (event.at("name") == "thread_name") {
        names[{event.at("pid"), event.at("tid")}] = event.at("args").at("name");
      }
      continue;
    }
    ASSERT_EQ(phase, "X");
    const double begin = event.at("ts");
    const double duration = event.at("dur");
    EXPECT_GE(begin, 0);
    EXPECT_GE(duration, 0);
    tracks[{event.at("pid"), event.at("tid")}].push_back(
        {event.at("name"), begin, begin + duration});
  }
  std::map<std::string, size_t> sizes;
  for (auto& [track, events] : tracks) {
    ASSERT_TRUE(names.contains(track)) << events.front().name;
    sizes[names.at(track) + (track.first == 1 ? " of the host" : "")] = events.size();
    std::ranges::sort(events, {}, &Event::begin_us);
    for (size_t i = 1; i < events.size(); ++i) {
      EXPECT_GE(events[i].begin_us, events[i - 1].end_us - 1e-3) << events[i].name;
    }
  }
  EXPECT_EQ(sizes, (std::map<std::string, size_t>{{"dispatches", 15},
                                                  {"layers", 6},
                                                  {"plan, record, submit, wait of the host", 12},
                                                  {"steps", 3},
                                                  {"steps of the host", 3}}));
  // The device's step lies within the host's, after its submission.
  const Event host = tracks.at({1, 1}).front();
  const Event device = tracks.at({2, 1}).front();
  EXPECT_EQ(host.name, "tg2");
  EXPECT_GE(device.begin_us, host.begin_us + 4);
  EXPECT_NEAR(device.end_us, host.end_us, 1e-3);
}

}  // namespace
}  // namespace pumice::bench
