#include "bench/report_page.hpp"

#include <nlohmann/json.hpp>

#include <map>

#include "bench/build_info.hpp"
#include "bench/statistics.hpp"

namespace pumice::bench {
namespace {

using Json = nlohmann::json;

Json row_to_json(const ResultRow& row, const std::string& file) {
  Json json = row.facts;
  json.update({{"kind", kind_name(row.kind)},
               {"test", row.test},
               {"model", row.model},
               {"device", row.device},
               {"driver", row.driver},
               {"commit", row.commit},
               {"file", file},
               {"unit", row.unit},
               {"n", row.samples.size()},
               {"median", nullptr},
               {"problem", row.problem}});
  if (row.problem.empty()) {
    const Summary summary = summarize(row.samples);
    json.update({{"median", summary.median}, {"low", summary.low}, {"high", summary.high}});
  }
  json["settings"] = Json::object();
  for (const auto& [name, value] : row.settings) json["settings"][name] = value;
  return json;
}

/// The first token's row names the test's as `of`.
Json rows_to_json(std::span<const ResultFile> files) {
  Json rows = Json::array();
  for (const ResultFile& file : files) {
    size_t last_id = 0;
    for (const ResultRow& row : file.rows) {
      Json json = row_to_json(row, file.name);
      json["id"] = rows.size();
      if (row.kind == ResultRow::Kind::kModel && !row.is_part) last_id = rows.size();
      if (row.kind == ResultRow::Kind::kFirstToken) json["of"] = last_id;
      rows.push_back(std::move(json));
    }
  }
  return rows;
}

/// As text of an HTML element.
std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else
      out += c;
  }
  return out;
}

/// JSON has "<", ">" and "&" only within strings, where they can be escaped: no tag can end its
/// element.
std::string escape_script_data(const Json& json) {
  constexpr bool kAsciiOnly = true;
  const std::string text = json.dump(-1, ' ', kAsciiOnly, Json::error_handler_t::replace);
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    if (c == '<')
      out += "\\u003c";
    else if (c == '>')
      out += "\\u003e";
    else if (c == '&')
      out += "\\u0026";
    else
      out += c;
  }
  return out;
}

/// The template with its marks replaced. What is put in is not searched for marks.
std::string fill_in(std::string_view page, const std::map<std::string, std::string>& parts) {
  constexpr std::string_view kBegin = "<!-- pumice:";
  constexpr std::string_view kEnd = " -->";
  std::string out;
  for (;;) {
    const size_t begin = page.find(kBegin);
    const size_t end = page.find(kEnd, begin);
    if (begin == std::string_view::npos || end == std::string_view::npos) break;
    const std::string name(page.substr(begin + kBegin.size(), end - begin - kBegin.size()));
    out += page.substr(0, begin);
    out += parts.at(name);
    page.remove_prefix(end + kEnd.size());
  }
  return out.append(page);
}

}  // namespace

Result<std::string> report_page(std::span<const ResultFile> files, const ReportParts& parts,
                                const std::string& made) {
  if (parts.chart_library.empty() || parts.chart_licence.empty()) {
    return make_error(ErrorCode::kInternal,
                      "this build has no Chart.js, which reports draw with: install the package "
                      "libjs-chart.js (chart.min.js and its copyright file) and configure and "
                      "build Pumice again");
  }
  Json names = Json::array();
  for (const ResultFile& file : files) names.push_back(file.name);
  const Json data{{"version", PUMICE_VERSION},
                  {"commit", build_commit()},
                  {"made", made},
                  {"files", std::move(names)},
                  {"rows", rows_to_json(files)}};
  return fill_in(parts.page, {{"style", std::string(parts.style)},
                              {"licence", escape_html(parts.chart_licence)},
                              {"data", escape_script_data(data)},
                              {"chart_library", std::string(parts.chart_library)},
                              {"script", std::string(parts.script)}});
}

}  // namespace pumice::bench
