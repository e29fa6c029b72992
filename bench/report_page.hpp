// `pumice report`: files of results as one HTML page that needs nothing else.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "bench/result_file.hpp"

namespace pumice::bench {

/// What a page is made of besides its data: bench/report/ and the chart library with its licence.
struct ReportParts {
  std::string_view page;  ///< HTML in which "<!-- pumice:NAME -->" stands for a part
  std::string_view style;
  std::string_view script;
  std::string_view chart_library;  ///< empty: not found when this was built
  std::string_view chart_licence;
};
/// Those built into the program.
const ReportParts& built_in_report_parts();

/// The page. Text of the files cannot become markup or script: it is in a JSON element without any
/// "<", and the page makes text nodes of it. `made` is the time it shows. Errors: kInternal if the
/// build has no chart library.
Result<std::string> report_page(std::span<const ResultFile> files, const ReportParts& parts,
                                const std::string& made);

}  // namespace pumice::bench
